/**
 * The archive itself, a tar of blobs and JSON: what lies where in it. Only a table of names is made;
 * nothing is unpacked. Old versions of `docker save` have links from one layer's name to another's; they
 * are looked up in the table.
 */
import type { FileHandle } from "node:fs/promises";
import { invalid, shown, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { readBlob } from "./blob.ts";
import type { Blob } from "./blob.ts";
import { FileSource } from "./byte-source.ts";
import { safeNames } from "./layer.ts";
import { readTar } from "./tar-reader.ts";
import { resolved } from "./tree.ts";

export interface ArchiveIndex {
  /** Where the file of this name lies; null where there is none. */
  find(name: string): Blob | null;
  /** The file's JSON. @throws `image_archive_invalid` where there is none */
  json(name: string): Promise<unknown>;
  readonly file: FileHandle;
}

const hopsMax = 8;

/** Reads the table of the tar in `file`. @throws `image_archive_invalid`, `too_large` */
export async function openArchive(
  file: FileHandle,
  bytes: number,
  limits: Limits,
): Promise<ArchiveIndex> {
  const places = new Map<string, Blob | { readonly link: string }>();
  const source = new FileSource(file, bytes);
  for await (const { entry, isSparse } of readTar(source, limits)) {
    if (entry.name.startsWith("/")) {
      throw invalid(`file ${shown(entry.name)} of the archive has an absolute name`);
    }
    const name = safeNames(entry.name, limits).join("/");
    if (entry.kind === "directory") continue;
    if (places.has(name)) throw invalid(`the archive has the file ${shown(name)} twice`);
    if (places.size >= limits.archiveEntriesMax) {
      throw tooLarge("the files of the archive", "archiveEntriesMax", limits);
    }
    if (isSparse) throw invalid(`file ${shown(name)} of the archive is sparse`);
    if (entry.kind === "file") places.set(name, { at: source.position, bytes: entry.bytes });
    else if (entry.kind === "hardlink")
      places.set(name, { link: safeNames(entry.link, limits).join("/") });
    else if (entry.kind === "symlink") places.set(name, { link: target(name, entry.link) });
    else throw invalid(`file ${shown(name)} of the archive is a ${entry.kind}`);
  }
  if (places.size === 0) throw invalid("it is no tar archive, or an empty one");

  const find = (name: string): Blob | null => {
    let found = places.get(name);
    for (let hops = 0; found !== undefined && "link" in found; hops++) {
      if (hops === hopsMax)
        throw invalid(`the links of the archive lead in a circle at ${shown(name)}`);
      found = places.get(found.link);
    }
    return found ?? null;
  };
  return {
    file,
    find,
    json: async (name) => {
      const blob = find(name);
      if (blob === null) throw invalid(`it has no ${shown(name)}`);
      return parseJson(await readBlob(file, blob, shown(name), limits), shown(name));
    },
  };
}

function target(name: string, link: string): string {
  const folder = link.startsWith("/") ? [] : name.split("/").slice(0, -1);
  return resolved([...folder, ...link.split("/")]).join("/");
}

/** @throws `image_archive_invalid` */
export function parseJson(bytes: Buffer, what: string): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch (error) {
    throw invalid(`${what} is not JSON`, error);
  }
}
