/**
 * Builds images. The slow parts, a kernel and a root file system, are kept by the digest of their
 * recipe, so a new guest agent costs only a new initramfs. One build at a time per directory; all of
 * it happens in temporary directories that get their names when they are whole.
 */
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, statfs, writeFile } from "node:fs/promises";
import path from "node:path";
import { PerdureError, sha256Hex } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image, ImageGuestAgent, ImagePackage } from "../core/ports/image-source.ts";
import { hostAptSource } from "./apt-source.ts";
import type { AptSource } from "./apt-source.ts";
import { openAptWorkspace } from "./apt-workspace.ts";
import type { AptWorkspace } from "./apt-workspace.ts";
import { withFileLock } from "../file-lock.ts";
import {
  contentOf,
  makeBuildDirectory,
  publishDirectory,
  removeLeftovers,
} from "./durable-file.ts";
import { describeGuestAgent } from "./guest-agent.ts";
import { fileNames } from "./image-record.ts";
import type { Content, ImageRecord } from "./image-record.ts";
import { buildInitramfs } from "./initramfs.ts";
import { extractKernel } from "./kernel.ts";
import { assertImageName, publishImage } from "./publish-image.ts";
import { recipeDigest, recipes } from "./recipe.ts";
import type { ImageKind, KernelRecipe, RootfsRecipe } from "./recipe.ts";
import { buildRootfs } from "./rootfs.ts";

/** Free space that a build asks for: packages, the unpacked tree and the result. */
const freeBytesMin = 1536 * 1024 * 1024;

/** Record beside the files of a part. */
const partFile = "part.json";

export interface BuildOptions {
  /** The images directory; made where absent. */
  readonly directory: string;
  /** Name that the image gets. */
  readonly name: string;
  readonly kind: ImageKind;
  /** The guest agent's program. */
  readonly guestAgentPath: string;
  /** Builds the kernel and root file system anew, with the packages of today. */
  readonly rebuild?: boolean;
  /** Called with each step that may take a second or more. */
  readonly report?: (line: string) => void;
}

interface KernelPart {
  readonly release: string;
  readonly kernel: Content;
  /** Names in the order in which they are loaded. */
  readonly modules: readonly string[];
}

interface RootfsPart {
  readonly rootfs: Content;
  readonly packages: readonly ImagePackage[];
}

/**
 * Builds an image, or finds that it is there already, and gives it its name.
 *
 * @throws PerdureError `bad_request`, `disk_full`, `image_build_failed`, `image_lint_failed`
 */
export async function buildImage(options: BuildOptions): Promise<Image> {
  const { directory, name } = options;
  assertImageName(name);
  const report = options.report ?? (() => undefined);
  await mkdir(path.join(directory, "names"), { recursive: true });
  await mkdir(path.join(directory, "parts"), { recursive: true });
  return withFileLock(
    path.join(directory, ".lock"),
    async () => {
      await removeLeftovers(directory);
      await removeLeftovers(path.join(directory, "parts"));
      const workspace = await makeBuildDirectory(directory);
      try {
        return await build(options, workspace, report);
      } finally {
        await rm(workspace, { recursive: true, force: true });
      }
    },
    () => report("waiting for another build to end"),
  );
}

async function build(
  options: BuildOptions,
  workspace: string,
  report: (line: string) => void,
): Promise<Image> {
  const { directory, kind, name } = options;
  const recipe = recipes[kind];
  const agent = await readFile(options.guestAgentPath).catch((error: unknown) => {
    throw new PerdureError(
      "image_build_failed",
      `Cannot read the guest agent "${options.guestAgentPath}"`,
      { hint: 'Run "make -C guest" first.', cause: error },
    );
  });
  const parts = new PartStore(path.join(directory, "parts"), workspace, options, report);
  const kernel = await parts.kernel(recipe.kernel);
  const rootfs = recipe.rootfs === null ? null : await parts.rootfs(recipe.rootfs);

  report("assembling the image");
  const initramfs = buildInitramfs(
    agent,
    await Promise.all(
      kernel.modules.map(async (module) => {
        return { name: module, content: await readFile(path.join(kernel.path, `${module}.ko`)) };
      }),
    ),
  );
  const record: ImageRecord = {
    version: 1,
    name,
    kernel: kernel.kernel,
    initramfs: { sha256: sha256Hex(initramfs) as Digest, bytes: initramfs.length },
    rootfs: rootfs?.rootfs ?? null,
    kernelVersion: kernel.release,
    commandLine: recipe.commandLine,
    guestAgent: describeGuestAgent(agent) satisfies ImageGuestAgent,
    packages: rootfs?.packages ?? [],
    recipe: recipeDigest(recipe),
  };
  const initramfsPath = path.join(workspace, fileNames.initramfs);
  await writeFile(initramfsPath, initramfs);
  return publishImage(directory, workspace, record, {
    kernel: path.join(kernel.path, fileNames.kernel),
    initramfs: initramfsPath,
    rootfs: rootfs === null ? null : path.join(rootfs.path, fileNames.rootfs),
  });
}

/** Kernels and root file systems by the digest of their recipe. */
class PartStore {
  readonly #directory: string;
  readonly #workspace: string;
  readonly #rebuild: boolean;
  readonly #report: (line: string) => void;
  #apt: { readonly source: AptSource; readonly workspace: AptWorkspace } | undefined;

  constructor(
    directory: string,
    workspace: string,
    options: Pick<BuildOptions, "rebuild">,
    report: (line: string) => void,
  ) {
    this.#directory = directory;
    this.#workspace = workspace;
    this.#rebuild = options.rebuild ?? false;
    this.#report = report;
  }

  kernel(recipe: KernelRecipe): Promise<KernelPart & { path: string }> {
    return this.#part(`kernel-${recipeDigest(recipe)}`, async (directory) => {
      const { workspace } = await this.#openApt();
      this.#report("downloading the kernel");
      const debFile = await workspace.downloadDependency(recipe.package);
      const vmlinuz = path.join(directory, fileNames.kernel);
      const kernel = await extractKernel(debFile, recipe.modules, this.#workspace, vmlinuz);
      for (const module of kernel.modules) {
        await writeFile(path.join(directory, `${module.name}.ko`), module.content);
      }
      return {
        release: kernel.release,
        kernel: await contentOf(vmlinuz),
        modules: kernel.modules.map((module) => module.name),
      };
    });
  }

  rootfs(recipe: RootfsRecipe): Promise<RootfsPart & { path: string }> {
    return this.#part(`rootfs-${recipeDigest(recipe)}`, async (directory) => {
      const { source, workspace } = await this.#openApt();
      const file = path.join(directory, fileNames.rootfs);
      const packages = await buildRootfs(recipe, this.#workspace, file, {
        source,
        epochSeconds: workspace.epochSeconds,
        report: this.#report,
      });
      return { rootfs: await contentOf(file), packages };
    });
  }

  async #part<T extends object>(
    name: string,
    make: (directory: string) => Promise<T>,
  ): Promise<T & { path: string }> {
    const target = path.join(this.#directory, name);
    if (this.#rebuild || !existsSync(path.join(target, partFile))) {
      const space = await statfs(this.#directory);
      if (space.bavail * space.bsize < freeBytesMin) {
        throw new PerdureError(
          "disk_full",
          `Cannot build an image in "${this.#directory}": fewer than ${freeBytesMin} bytes are free`,
        );
      }
      const directory = await makeBuildDirectory(this.#directory);
      try {
        const part = await make(directory);
        await writeFile(path.join(directory, partFile), JSON.stringify(part) + "\n");
        await publishDirectory(directory, target);
      } catch (error) {
        await rm(directory, { recursive: true, force: true });
        throw error;
      }
    }
    const part = JSON.parse(await readFile(path.join(target, partFile), "utf8")) as T;
    return { ...part, path: target };
  }

  /** The package lists are read once per build, and only when something is to be built. */
  async #openApt(): Promise<{ source: AptSource; workspace: AptWorkspace }> {
    if (this.#apt === undefined) {
      this.#report("reading package lists");
      const { suite } = recipes.debian.kernel;
      const source = await hostAptSource(suite);
      const workspace = await openAptWorkspace(path.join(this.#workspace, "apt"), source);
      this.#apt = { source, workspace };
    }
    return this.#apt;
  }
}
