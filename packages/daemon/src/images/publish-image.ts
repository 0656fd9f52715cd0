/** The last step of everything that makes an image: its files get their place, then their name. */
import { link, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { imageNameSchema, PerdureError } from "@perdure/protocol";
import type { Image } from "../core/ports/image-source.ts";
import { makeBuildDirectory, publishDirectory, replaceFile } from "./durable-file.ts";
import { fileNames, imageId, recordFile, writeRecord } from "./image-record.ts";
import type { ImageRecord } from "./image-record.ts";
import { createImageStore } from "./image-store.ts";

/** Where the files of a new image lie: on the file system of the images directory. */
export interface ImageFiles {
  readonly kernel: string;
  readonly initramfs: string;
  readonly rootfs: string | null;
}

/** @throws `bad_request` */
export function assertImageName(name: string): void {
  if (imageNameSchema.safeParse(name).success) return;
  throw new PerdureError("bad_request", `Cannot name an image "${name}"`, {
    hint: "Use up to 63 lower-case letters, digits, dots, dashes and underscores.",
  });
}

/**
 * Makes the image of `record`, unless it is there already, and gives it its name. Durable on return, whole
 * or not there. Only while holding the build lock.
 *
 * @param workspace a folder in the images directory, for what is not whole yet
 */
export async function publishImage(
  directory: string,
  workspace: string,
  record: ImageRecord,
  files: ImageFiles,
): Promise<Image> {
  const id = imageId(record);
  const store = createImageStore(directory);
  const existing = await store.resolve(id).catch(() => null);
  if (existing === null) {
    const draft = await makeBuildDirectory(workspace);
    try {
      await link(files.kernel, path.join(draft, fileNames.kernel));
      await link(files.initramfs, path.join(draft, fileNames.initramfs));
      if (files.rootfs !== null) await link(files.rootfs, path.join(draft, fileNames.rootfs));
      await writeFile(path.join(draft, recordFile), writeRecord(record));
      await publishDirectory(draft, path.join(directory, id));
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
  }
  await nameImage(directory, record.name, id);
  return store.resolve(id);
}

/** From now on `name` stands for the image. */
export function nameImage(directory: string, name: string, id: string): Promise<void> {
  return replaceFile(path.join(directory, "names", name), `${id}\n`);
}
