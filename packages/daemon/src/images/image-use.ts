/**
 * Who stands on which image, where data directories share an images folder:
 *
 *     uses/<image id>/<id of the data directory>    its path
 *
 * A mark is there from before an agent's first file until after its last. Marks are set, and images removed,
 * under one lock that is never held for long. A data directory that is gone needs nothing.
 */
import { mkdir, readdir, readFile, rm, stat } from "node:fs/promises";
import path from "node:path";
import { PerdureError, digestSchema } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { ImageUses } from "../core/ports/image-workshop.ts";
import { withFileLock } from "../file-lock.ts";
import { replaceFile } from "./durable-file.ts";

const folder = "uses";

/** A data directory. */
export interface ImageOwner {
  readonly id: string;
  readonly home: string;
}

export function withUsesLock<T>(directory: string, work: () => Promise<T>): Promise<T> {
  return withFileLock(path.join(directory, ".uses.lock"), work);
}

export function createImageUses(directory: string, owner: ImageOwner): ImageUses {
  const markOf = (image: Digest): string => path.join(directory, folder, image, owner.id);
  return {
    hold: async (image) => {
      if (await isThere(markOf(image))) return;
      await withUsesLock(directory, async () => {
        if (!(await isThere(path.join(directory, image)))) {
          throw new PerdureError("image_not_found", `Image ${image} was removed`, {
            hint: '"perdure image list" shows those that exist',
          });
        }
        await mkdir(path.dirname(markOf(image)), { recursive: true });
        await replaceFile(markOf(image), `${owner.home}\n`);
      });
    },
    release: (image) => rm(markOf(image), { force: true }),
    held: async () => {
      const images = await readdir(path.join(directory, folder)).catch((): string[] => []);
      const ids = images.filter((name): name is Digest => digestSchema.safeParse(name).success);
      const marked = await Promise.all(ids.map((id) => isThere(markOf(id))));
      return ids.filter((_, index) => marked[index] === true);
    },
  };
}

/** Data directories that hold the image. Only under the lock. */
export async function homesOf(directory: string, image: Digest): Promise<string[]> {
  const marks = path.join(directory, folder, image);
  const homes: string[] = [];
  for (const name of await readdir(marks).catch((): string[] => [])) {
    const home = (await readFile(path.join(marks, name), "utf8").catch(() => "")).trim();
    if (home !== "" && (await isThere(home))) homes.push(home);
  }
  return homes;
}

/** Only under the lock. */
export async function forgetUses(directory: string, image: Digest): Promise<void> {
  await rm(path.join(directory, folder, image), { recursive: true, force: true });
}

function isThere(at: string): Promise<boolean> {
  return stat(at).then(
    () => true,
    () => false,
  );
}
