/** The image of test VMs: the kernel and modules of the prepared image, with the probe guest as PID 1. */
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { sha256Hex, type Digest } from "@perdure/protocol";
import type { BootFiles } from "../../packages/daemon/src/core/ports/substrate.ts";
import { writeCpio } from "../../packages/daemon/src/images/cpio.ts";
import {
  createImageStore,
  defaultImagesDirectory,
} from "../../packages/daemon/src/images/image-store.ts";

/** @throws PerdureError `image_not_found` where no image was prepared (`npm run setup`) */
export async function makeProbeImage(folder: string): Promise<BootFiles> {
  const program = join(folder, "probe-guest");
  const source = new URL("./probe-guest.c", import.meta.url).pathname;
  await promisify(execFile)("gcc", ["-O2", "-static", "-o", program, source]);
  const image = await createImageStore(defaultImagesDirectory()).resolve("debian");
  // The kernel unpacks one archive after the other: this one's /init replaces the agent's.
  const init = writeCpio([
    { kind: "file", path: "init", mode: 0o755, content: await readFile(program) },
  ]);
  const initramfs = Buffer.concat([await readFile(image.initramfs.path), gzipSync(init)]);
  const initramfsPath = join(folder, "initramfs.gz");
  await writeFile(initramfsPath, initramfs, { mode: 0o644 });
  return {
    kernelPath: image.kernel.path,
    kernelDigest: image.kernel.sha256,
    initramfsPath,
    initramfsDigest: sha256Hex(initramfs) as Digest,
    commandLine: image.commandLine.replace(/perdure\.root=\S+/, "perdure.root=none"),
    guestProtocol: image.guestAgent.protocol,
  };
}
