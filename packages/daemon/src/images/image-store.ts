/**
 * The images on this host, in one directory:
 *
 *     <id>/            vmlinuz, initramfs.gz, rootfs.ext4, image.json: immutable
 *     names/<name>     the id that a name stands for now
 *     parts/           kernels and root file systems by the digest of their recipe, for later builds
 *     .lock            held by a builder
 *
 * Files appear by rename when they are whole. Readers need no lock.
 */
import { readFile, readdir, stat } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { PerdureError, digestSchema, imageNameSchema } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image, ImageFile, ImageSource } from "../core/ports/image-source.ts";
import { adoptImage, tidyImages } from "./adopt-image.ts";
import { readRecord, recordFile, toImage } from "./image-record.ts";
import { nearestName } from "./nearest-name.ts";

/** Where images are kept unless told otherwise: `PERDURE_IMAGES`, or a place that suits the user. */
export function defaultImagesDirectory(
  environment: Readonly<Record<string, string | undefined>> = process.env,
  uid: number | undefined = process.getuid?.(),
): string {
  if (environment.PERDURE_IMAGES !== undefined && environment.PERDURE_IMAGES !== "") {
    return path.resolve(environment.PERDURE_IMAGES);
  }
  if (uid === 0) return "/var/lib/perdure/images";
  return path.join(environment.HOME ?? os.homedir(), ".local/share/perdure/images");
}

/** Opens `directory`, which need not exist: then it holds no images. Nothing to close. */
export function createImageStore(directory: string): ImageSource {
  // A record is what its digest says, so it is read and checked once; its files may go at any time.
  const known = new Map<string, { readonly image: Image; readonly recordBytes: number }>();

  const read = async (id: string): Promise<void> => {
    const at = path.join(directory, id);
    const bytes = await readFile(path.join(at, recordFile)).catch(() => null);
    const record = bytes === null ? null : readRecord(bytes.toString("utf8"));
    const image = record === null ? null : toImage(record, at);
    if (bytes !== null && image?.id === id) known.set(id, { image, recordBytes: bytes.length });
  };

  const load = async (id: string): Promise<Image | null> => {
    if (!known.has(id)) await read(id);
    const found = known.get(id);
    if (found === undefined) return null;
    const { kernel, initramfs, rootfs } = found.image;
    const record = { path: path.join(directory, id, recordFile), bytes: found.recordBytes };
    const files = [record, kernel, initramfs, ...(rootfs === null ? [] : [rootfs])];
    return (await Promise.all(files.map(isWhole))).every(Boolean) ? found.image : null;
  };

  const list = async (): Promise<Image[]> => {
    const names = await readdir(directory).catch((): string[] => []);
    const images = await Promise.all(names.filter(isId).map(load));
    return images
      .filter((image) => image !== null)
      .sort((a, b) => a.name.localeCompare(b.name, "en") || a.id.localeCompare(b.id, "en"));
  };

  return {
    resolve: async (nameOrId) => {
      const id = isId(nameOrId) ? nameOrId : await readName(directory, nameOrId);
      const image = id === null ? null : await load(id);
      if (image !== null) return image;
      // An id may be made up; a name was given to something.
      const isDamaged =
        id !== null && (id !== nameOrId || (await isThere(path.join(directory, id))));
      const names = [...new Set((await list()).map(({ name }) => name))];
      throw notFound(nameOrId, isDamaged, names, directory);
    },
    list,
    describe: async (id) => {
      const image = await load(id);
      if (image === null) throw notFound(id, false, [], directory);
      return readFile(path.join(directory, id, recordFile), "utf8");
    },
    adopt: (description, files) =>
      adoptImage(directory, description, files, async (id) => (await load(id)) !== null),
    tidy: () => tidyImages(directory),
  };
}

function notFound(
  nameOrId: string,
  isDamaged: boolean,
  names: readonly string[],
  directory: string,
): PerdureError {
  const state = isDamaged ? "its files are missing or damaged" : "there is none";
  const others = names.length === 0 ? "" : `; there are ${names.map(inQuotes).join(", ")}`;
  const nearest = nearestName(nameOrId, names);
  const setup = `Run "npm run setup" to build the default image in "${directory}".`;
  const choice = nearest === null ? "Choose one of those." : `Did you mean "${nearest}"?`;
  return new PerdureError("image_not_found", `Cannot use image "${nameOrId}": ${state}${others}`, {
    hint: isDamaged || names.length === 0 ? setup : choice,
  });
}

function inQuotes(name: string): string {
  return `"${name}"`;
}

/** The id that a name stands for, or `null`. */
async function readName(directory: string, name: string): Promise<string | null> {
  if (!imageNameSchema.safeParse(name).success) return null;
  const text = await readFile(path.join(directory, "names", name), "utf8").catch(() => "");
  return isId(text.trim()) ? text.trim() : null;
}

function isId(text: string): text is Digest {
  return digestSchema.safeParse(text).success;
}

async function isThere(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}

async function isWhole(file: Pick<ImageFile, "path" | "bytes">): Promise<boolean> {
  const status = await stat(file.path).catch(() => null);
  return status !== null && status.isFile() && status.size === file.bytes;
}
