/**
 * A private apt: its own lists and caches in a temporary folder, so that it works without being root
 * and on hosts of another suite, and changes nothing of the host's.
 */
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";
import type { AptSource } from "./apt-source.ts";
import { runTool } from "./tool-process.ts";

export interface AptWorkspace {
  /**
   * Newest release date of the lists, in seconds since 1970. No file in a package is newer, so
   * clamping times to it makes builds of one day alike without making anything older than it is.
   */
  readonly epochSeconds: number;
  /** Downloads the package that `metaPackage` depends on; the path of the .deb file. */
  downloadDependency(metaPackage: string): Promise<string>;
}

/** Sets up apt in `directory` and reads the package lists of `source`. */
export async function openAptWorkspace(
  directory: string,
  source: AptSource,
): Promise<AptWorkspace> {
  const at = (name: string): string => path.join(directory, name);
  await mkdir(at("lists/partial"), { recursive: true });
  await mkdir(at("archives/partial"), { recursive: true });
  await mkdir(at("packages"));
  await writeFile(at("sources.list"), source.lines.join("\n") + "\n");
  await writeFile(at("status"), "");
  const settings = {
    "APT::Architecture": "amd64",
    "APT::Sandbox::User": "root", // the workspace is not readable to apt's own user
    "Acquire::Languages": "none",
    "Dir::Cache": directory,
    "Dir::Cache::archives": at("archives"),
    "Dir::Etc::sourcelist": at("sources.list"),
    "Dir::Etc::sourceparts": "-",
    "Dir::Etc::preferences": "-",
    "Dir::Etc::preferencesparts": "-",
    "Dir::State": directory,
    "Dir::State::lists": at("lists"),
    "Dir::State::status": at("status"),
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} "${value}";`);
  await writeFile(
    at("apt.conf"),
    [...lines, 'APT::Architectures { "amd64"; };', ...source.options].join("\n") + "\n",
  );
  const env = { APT_CONFIG: at("apt.conf") };
  await runTool("apt-get", ["-qq", "update", "--error-on=any"], { env });

  return {
    epochSeconds: await newestRelease(at("lists")),
    downloadDependency: async (metaPackage) => {
      const record = await runTool("apt-cache", ["show", "--no-all-versions", metaPackage], {
        env,
      });
      const name = /^Depends: ([a-z0-9.+-]+)/m.exec(record)?.[1];
      if (name === undefined) {
        throw new PerdureError("image_build_failed", `Package "${metaPackage}" depends on nothing`);
      }
      await runTool("apt-get", ["-qq", "download", name], { env, cwd: at("packages") });
      const file = (await readdir(at("packages"))).find((entry) => entry.startsWith(`${name}_`));
      if (file === undefined) {
        throw new PerdureError("image_build_failed", `apt did not download package "${name}"`);
      }
      return at(path.join("packages", file));
    },
  };
}

async function newestRelease(lists: string): Promise<number> {
  const names = (await readdir(lists)).filter((name) => /_(In)?Release$/.test(name));
  const dates = await Promise.all(
    names.map(async (name) => {
      const text = await readFile(path.join(lists, name), "utf8");
      return Date.parse(/^Date: (.+)$/m.exec(text)?.[1] ?? "");
    }),
  );
  const newestMs = Math.max(...dates.filter(Number.isFinite));
  if (!Number.isFinite(newestMs)) {
    throw new PerdureError("image_build_failed", "The package lists have no release date");
  }
  return Math.trunc(newestMs / 1000);
}
