/**
 * From an archive to the tree of its image: every layer is read once, its digests are checked, then it is
 * applied. Layers are read again later for the content of the files that are left.
 */
import type { FileHandle } from "node:fs/promises";
import type { Limits } from "./archive-error.ts";
import { applyLayer } from "./apply-layer.ts";
import { openLayer } from "./blob.ts";
import type { Room } from "./blob.ts";
import { StreamSource } from "./byte-source.ts";
import { readLayer, Tally } from "./layer.ts";
import type { FoundImage } from "./manifest.ts";
import { readTar } from "./tar-reader.ts";
import type { TarItem } from "./tar-reader.ts";
import { Tree } from "./tree.ts";

/** @throws PerdureError `image_archive_invalid`, `too_large`, `not_supported` */
export async function readImage(
  file: FileHandle,
  { layers }: FoundImage,
  limits: Limits,
  report: (line: string) => void,
): Promise<Tree> {
  const tree = new Tree(limits);
  const tally = new Tally(limits);
  const room: Room = { bytes: limits.unpackedBytesMax };
  for (const [index, layer] of layers.entries()) {
    const what = `layer ${index + 1} of ${layers.length}`;
    report(`reading ${what}`);
    const { tar, end } = openLayer(file, layer.blob, layer, room, limits);
    const source = new StreamSource(tar);
    const read = await readLayer(readTar(source, limits), tally);
    await source.drain();
    end(what);
    applyLayer(tree, read, index, limits);
  }
  return tree;
}

/** The entries of a layer that was read before. Leaving the loop closes it. */
export async function* rereadLayer(
  file: FileHandle,
  { layers }: FoundImage,
  number: number,
  limits: Limits,
): AsyncGenerator<TarItem> {
  const layer = layers[number];
  if (layer === undefined) throw new Error(`There is no layer ${number}`);
  const { tar } = openLayer(file, layer.blob, layer, { bytes: limits.unpackedBytesMax }, limits);
  const bytes = tar[Symbol.asyncIterator]();
  try {
    yield* readTar(new StreamSource({ [Symbol.asyncIterator]: () => bytes }), limits);
  } finally {
    await bytes.return?.();
  }
}
