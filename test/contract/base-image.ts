/** For tests: an images directory with a base image of a few bytes, which no VM could boot. */
import { mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Image } from "../../packages/daemon/src/core/ports/image-source.ts";
import { contentOf } from "../../packages/daemon/src/images/durable-file.ts";
import { publishImage } from "../../packages/daemon/src/images/publish-image.ts";

export async function makeBaseImage(directory: string, name = "debian"): Promise<Image> {
  await mkdir(path.join(directory, "names"), { recursive: true });
  const write = async (file: string) => {
    const at = path.join(directory, file);
    await writeFile(at, `${name} ${file}`);
    return { at, content: await contentOf(at) };
  };
  const kernel = await write("kernel");
  const initramfs = await write("initramfs");
  const rootfs = await write("rootfs");
  const image = await publishImage(
    directory,
    directory,
    {
      version: 1,
      name,
      kernel: kernel.content,
      initramfs: initramfs.content,
      rootfs: rootfs.content,
      kernelVersion: "6.1.0-test",
      commandLine: "perdure.root=/dev/vda",
      guestAgent: { sha256: kernel.content.sha256, version: "0.1.0", protocol: 1 },
      packages: [{ name: "bash", version: "5.2" }],
      recipe: kernel.content.sha256,
    },
    { kernel: kernel.at, initramfs: initramfs.at, rootfs: rootfs.at },
  );
  for (const { at } of [kernel, initramfs, rootfs]) await rm(at);
  return image;
}
