/** Takes the kernel and the few modules a VM needs out of Debian's kernel package. */
import { copyFile, mkdir, readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { gunzip, zstdDecompress } from "node:zlib";
import { PerdureError } from "@perdure/protocol";
import { moduleName, moduleOrder } from "./module-order.ts";
import { runTool } from "./tool-process.ts";

export interface KernelModule {
  readonly name: string;
  readonly content: Uint8Array;
}

export interface Kernel {
  readonly release: string;
  /** In the order in which they must be loaded. */
  readonly modules: readonly KernelModule[];
}

/** Unpacks `debFile` in `workspace` and copies its kernel to `vmlinuz`. */
export async function extractKernel(
  debFile: string,
  wanted: readonly string[],
  workspace: string,
  vmlinuz: string,
): Promise<Kernel> {
  const tree = path.join(workspace, "kernel");
  await mkdir(tree);
  await runTool("dpkg-deb", ["--extract", debFile, tree]);
  const image = (await readdir(path.join(tree, "boot"))).find((name) =>
    name.startsWith("vmlinuz-"),
  );
  if (image === undefined) {
    throw new PerdureError("image_build_failed", `"${debFile}" has no kernel in /boot`);
  }
  const release = image.slice("vmlinuz-".length);
  await runTool("depmod", ["--basedir", tree, release]);
  const root = path.join(tree, "lib/modules", release);
  const files = moduleOrder(
    wanted,
    await readFile(path.join(root, "modules.dep"), "utf8"),
    await readFile(path.join(root, "modules.builtin"), "utf8"),
  );
  const modules: KernelModule[] = [];
  for (const file of files) {
    modules.push({ name: moduleName(file), content: await readModule(path.join(root, file)) });
  }
  await copyFile(path.join(tree, "boot", image), vmlinuz);
  return { release, modules };
}

async function readModule(file: string): Promise<Uint8Array> {
  if (file.endsWith(".xz")) {
    const plain = file.slice(0, -".xz".length);
    await runTool("xz", ["--decompress", "--keep", file]);
    return readFile(plain);
  }
  const content = await readFile(file);
  if (file.endsWith(".gz")) return promisify(gunzip)(content);
  if (file.endsWith(".zst")) return promisify(zstdDecompress)(content);
  return content;
}
