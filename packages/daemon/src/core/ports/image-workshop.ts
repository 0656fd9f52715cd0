/**
 * Port: making and removing images. The images folder may be shared by several daemons; one builds at a
 * time, and what appears there is whole.
 */
import type { Digest, Recipe } from "@perdure/protocol";
import type { Image } from "./image-source.ts";

export interface ImportWish {
  /** The name that the image gets; it stands for that image from then on. */
  readonly name: string;
  /** Which image is meant where the archive holds several. */
  readonly reference?: string;
  /** Whether agents start its program by themselves. */
  readonly start: boolean;
}

/** What else is known of an image on this host. */
export interface ImageFacts {
  /** Names that stand for it now; none where newer ones have taken them all. */
  readonly names: readonly string[];
  /** What its files take on the disk. Files that it shares with other images count too. */
  readonly storedBytes: number;
  readonly createdAtMs: number;
  /** Whether imports and builds take their kernel from it. */
  readonly isBase: boolean;
}

/** Work that ends with an image. */
export interface ImageWork {
  /**
   * Resolves when the image is there, durable, under its name. `signal` ends it, and leaves nothing.
   *
   * @throws `image_archive_invalid`, `too_large`, `not_supported`, `image_build_failed`,
   * `image_lint_failed`, `disk_full`, `host_not_ready`, `cancelled`
   */
  finish(signal: AbortSignal, report: (message: string) => void): Promise<Image>;
  /** Instead of `finish`: nothing is left. */
  drop(): Promise<void>;
}

export interface ImageWorkshop {
  /**
   * Takes an archive in. Resolves when all of it is on the disk: then `finish` or `drop` it.
   *
   * @throws what `archive` throws; `too_large`, `disk_full`, `too_many`: then nothing is left
   */
  receive(wish: ImportWish, archive: AsyncIterable<Uint8Array>): Promise<ImageWork>;
  /** @throws `too_many` */
  build(name: string, recipe: Recipe): Promise<ImageWork>;

  facts(image: Image): Promise<ImageFacts>;
  /** The name stands for nothing any more. Does nothing where it did not. */
  unname(name: string): Promise<void>;
  /**
   * Removes the image and every name that stands for it; frees what no other image needs.
   *
   * @throws `image_in_use` where agents of another data directory stand on it
   */
  remove(image: Digest): Promise<void>;
}

/**
 * Which images this data directory's agents stand on, for daemons of others that share the images folder.
 * Durable on return, and idempotent.
 */
export interface ImageUses {
  /** @throws `image_not_found` where it was removed meanwhile */
  hold(image: Digest): Promise<void>;
  release(image: Digest): Promise<void>;
  /** Those that are held. */
  held(): Promise<readonly Digest[]>;
}
