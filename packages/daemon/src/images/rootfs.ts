/**
 * Builds a Debian root file system: mmdebstrap makes the tree, the lint looks through it, mke2fs
 * packs it. As root directly; as another user in a user namespace (mmdebstrap) and with pretended
 * owners (fakeroot), with the same result.
 */
import { lstat, mkdir, open, readdir, readFile, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { agentLimits, PerdureError } from "@perdure/protocol";
import type { ImagePackage } from "../core/ports/image-source.ts";
import type { AptSource } from "./apt-source.ts";
import { ext4SizeFor, makeExt4 } from "./ext4.ts";
import type { Ext4Size } from "./ext4.ts";
import { refuseUncleanTree } from "./image-lint.ts";
import { defaultHostName } from "./recipe.ts";
import type { RootfsRecipe } from "./recipe.ts";
import { runTool } from "./tool-process.ts";

export interface RootfsOptions {
  readonly source: AptSource;
  readonly epochSeconds: number;
  readonly report: (line: string) => void;
}

/** Writes the file system to `file` and returns the packages it holds. */
export async function buildRootfs(
  recipe: RootfsRecipe,
  workspace: string,
  file: string,
  options: RootfsOptions,
): Promise<ImagePackage[]> {
  const tar = path.join(workspace, "rootfs.tar");
  const tree = path.join(workspace, "tree");
  const run = process.getuid?.() === 0 ? runTool : pretendedRoot(path.join(workspace, "owners"));

  await debootstrap(recipe, tar, workspace, options);
  await mkdir(tree, { mode: 0o755 });
  options.report("unpacking and looking for keys and fixed identities");
  await run("tar", [
    ...["--extract", "--preserve-permissions", "--same-owner", "--numeric-owner"],
    ...["--exclude=./dev/*", "--directory", tree, "--file", tar],
  ]);
  await refuseUncleanTree(tree, {
    ...{ defaultHostName, buildHostName: os.hostname() },
    ...(recipe.setuid === undefined ? {} : { setuid: recipe.setuid }),
  });
  options.report("making the file system");
  await makeExt4(tree, file, workspace, {
    ...(recipe.bytes === null
      ? { ...ext4SizeFor(await sizeOf(tree)), growsToBytes: agentLimits.diskBytesMax }
      : { bytes: recipe.bytes }),
    epochSeconds: options.epochSeconds,
    run,
  });
  return installedPackages(await readFile(path.join(tree, "var/lib/dpkg/status"), "utf8"));
}

async function debootstrap(
  recipe: RootfsRecipe,
  tar: string,
  workspace: string,
  options: RootfsOptions,
): Promise<void> {
  const sources = path.join(workspace, "rootfs.list");
  await writeFile(sources, options.source.lines.join("\n") + "\n");
  const output = await open(tar, "wx");
  const problems: string[] = [];
  try {
    await runTool(
      "mmdebstrap",
      [
        `--mode=${process.getuid?.() === 0 ? "root" : "unshare"}`,
        "--variant=minbase",
        "--architectures=amd64",
        "--format=tar",
        `--include=${recipe.packages.join(",")}`,
        ...options.source.options.map((line) => `--aptopt=${line.replace(/;$/, "")}`),
        ...recipe.dpkgOptions.map((line) => `--dpkgopt=${line}`),
        `--customize-hook=${recipe.finish}`,
        recipe.suite,
        "-",
        sources,
      ],
      {
        stdout: output,
        env: {
          SOURCE_DATE_EPOCH: String(options.epochSeconds),
          // Out of reach for the root of a user namespace.
          ...(process.getuid?.() === 0 ? { TMPDIR: workspace } : {}),
        },
        onLine: (line) => {
          const problem = /^E: (?!setup failed|mmdebstrap failed)(.*)$/.exec(line)?.[1];
          if (problem !== undefined) problems.push(problem.slice(0, 200));
          const step = /^I: ((?:downloading|extracting|installing|cleaning|creating).*)$/.exec(
            line,
          );
          if (step?.[1] !== undefined) options.report(step[1].replace(/\.+$/, ""));
        },
      },
    );
  } catch (error) {
    if (problems.length === 0) throw error;
    const { code } = PerdureError.from(error);
    const said = problems.slice(0, problemsShown).join("; ");
    throw new PerdureError(code, `Cannot make the root file system: ${said}`, { cause: error });
  } finally {
    await output.close();
  }
}

/** Of what the tools called an error. */
const problemsShown = 5;

const blockBytes = 4096;

/** What a tree takes in a file system. A hard link counts each time: a little too much. */
async function sizeOf(tree: string): Promise<Ext4Size> {
  let inodes = 0;
  let bytes = 0;
  for (const entry of await readdir(tree, { recursive: true, withFileTypes: true })) {
    inodes += 1;
    const { size } = await lstat(path.join(entry.parentPath, entry.name));
    bytes += Math.ceil(size / blockBytes) * blockBytes;
  }
  return { inodes, bytes };
}

/** Runs tools under fakeroot, which remembers owners in `state` from one to the next. */
function pretendedRoot(state: string): typeof runTool {
  return async (command, args, options) => {
    await writeFile(state, "", { flag: "a" });
    return runTool("fakeroot", ["-i", state, "-s", state, "--", command, ...args], options);
  };
}

/** Packages that dpkg's status file lists as installed, by name. */
export function installedPackages(status: string): ImagePackage[] {
  return status
    .split(/\n\n+/)
    .flatMap((record) => {
      const field = (name: string): string | undefined =>
        new RegExp(`^${name}: (.+)$`, "m").exec(record)?.[1];
      const name = field("Package");
      const version = field("Version");
      const installed = field("Status") === "install ok installed";
      return installed && name !== undefined && version !== undefined ? [{ name, version }] : [];
    })
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
}
