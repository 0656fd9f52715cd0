/**
 * The image that others take their kernel from, and the initramfs with the guest agent: the one that
 * set-up builds.
 */
import { PerdureError } from "@perdure/protocol";
import type { Image } from "../core/ports/image-source.ts";
import { createImageStore } from "./image-store.ts";

/** Its name, which no import may take. */
export const baseImageName = "debian";

/** @throws `image_not_found` */
export async function baseImage(directory: string): Promise<Image> {
  const image = await createImageStore(directory).resolve(baseImageName);
  if (image.rootfs !== null) return image;
  throw new PerdureError("image_not_found", `Image "${baseImageName}" has no root file system`, {
    hint: `Run "npm run setup" to build it in "${directory}".`,
  });
}
