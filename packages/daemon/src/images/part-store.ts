/**
 * Kernels and root file systems, by the digest of their recipe: what was built once is used again. A part
 * is made in the builder's workspace and gets its name when it is whole. Only while holding the build lock.
 */
import { existsSync } from "node:fs";
import { readdir, readFile, rm, stat, statfs, writeFile } from "node:fs/promises";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";
import { tryWithFileLock } from "../file-lock.ts";
import type { ImagePackage } from "../core/ports/image-source.ts";
import { hostAptSource } from "./apt-source.ts";
import type { AptSource } from "./apt-source.ts";
import { openAptWorkspace } from "./apt-workspace.ts";
import type { AptWorkspace } from "./apt-workspace.ts";
import { contentOf, makeBuildDirectory, publishDirectory } from "./durable-file.ts";
import { fileNames } from "./image-record.ts";
import type { Content } from "./image-record.ts";
import { extractKernel } from "./kernel.ts";
import { recipeDigest, recipes } from "./recipe.ts";
import type { KernelRecipe, RootfsRecipe } from "./recipe.ts";
import { buildRootfs } from "./rootfs.ts";

/** Free space that a build asks for: packages, the unpacked tree and the result. */
const freeBytesMin = 1536 * 1024 * 1024;

/** Record beside the files of a part. */
const partFile = "part.json";

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
 * Removes parts that no image has a file of, but for those of the recipes of today: a build would only make
 * them again. Waits for no build: one that is under way keeps them all.
 */
export async function removeUnusedParts(directory: string): Promise<void> {
  const folder = path.join(directory, "parts");
  const today = new Set(
    Object.values(recipes).flatMap(({ kernel, rootfs }) => [
      `kernel-${recipeDigest(kernel)}`,
      ...(rootfs === null ? [] : [`rootfs-${recipeDigest(rootfs)}`]),
    ]),
  );
  await tryWithFileLock(path.join(directory, ".lock"), async () => {
    for (const name of await readdir(folder).catch((): string[] => [])) {
      const file = name.startsWith("kernel-") ? fileNames.kernel : fileNames.rootfs;
      const found = await stat(path.join(folder, name, file)).catch(() => null);
      if (today.has(name) || found === null || found.nlink > 1) continue;
      await rm(path.join(folder, name), { recursive: true, force: true });
    }
  });
}

export class PartStore {
  readonly #directory: string;
  readonly #workspace: string;
  readonly #rebuild: boolean;
  readonly #report: (line: string) => void;
  #apt: { readonly source: AptSource; readonly workspace: AptWorkspace } | undefined;

  constructor(
    directory: string,
    workspace: string,
    options: { readonly rebuild?: boolean },
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
      const directory = await makeBuildDirectory(this.#workspace);
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
