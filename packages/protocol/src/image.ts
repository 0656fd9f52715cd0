/**
 * Images as the API, SDK and CLI show them, what an archive may hold, and what a recipe may say.
 *
 * An image that was imported keeps what its container configuration says (`ImageConfig`): how programs
 * run in agents made from it, unless a call says otherwise.
 */
import { z } from "zod";
import { GIB, MIB } from "./agent.ts";
import { digestSchema } from "./id.ts";

/** Bounds of an archive that is imported. Beyond one of them is `too_large`, and `details.limit` names it. */
export const archiveLimits = {
  /** The archive as it is sent. */
  archiveBytesMax: 64 * GIB,
  /** Files in the archive itself: layers, manifests, configurations. */
  archiveEntriesMax: 20_000,
  /** One manifest, index or configuration. */
  jsonBytesMax: 4 * MIB,
  layersMax: 256,
  /** Entries of all layers together. */
  entriesMax: 1_000_000,
  /** All layers together, uncompressed; a hole of a sparse file counts like any other byte. */
  unpackedBytesMax: 64 * GIB,
  /** One file of a layer. */
  fileBytesMax: 32 * GIB,
  /** Names, link targets and extended attributes of all layers together. */
  metadataBytesMax: 512 * MIB,
  /** One name between two slashes. */
  nameBytesMax: 255,
  /** A path inside the image, and the target of a symbolic link. */
  pathBytesMax: 4095,
  /** Names and values of one file's extended attributes: what fits beside an inode of ext4. */
  xattrBytesMax: 3072,
  /** Pieces of one sparse file. */
  sparsePiecesMax: 100_000,
} as const;
export type ArchiveLimit = keyof typeof archiveLimits;

/** A name for an image: shorter than an id, so that neither is taken for the other. */
export const imageNameSchema = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9._-]{0,62}$/,
    "1 to 63 lower-case letters, digits, dots, dashes and underscores, the first a letter or digit",
  );

/** `:image` in a path. */
export const imageRefSchema = z.union([imageNameSchema, digestSchema], {
  error: "must be an image's name or id",
});

const textMap = z.record(z.string(), z.string());

/** What the configuration of a container image says. */
export const imageConfigSchema = z.object({
  /** `name`, `uid`, either with `:group` or `:gid`: who programs run as where a call names nobody. */
  user: z.string().min(1).max(64),
  /** Where programs begin; null: in the home of the user. */
  cwd: z.string().nullable(),
  /** Set for every program, below what a call sets. */
  env: textMap,
  entrypoint: z.array(z.string()),
  cmd: z.array(z.string()),
  /** Whether `entrypoint` and `cmd` are started when an agent is created, and after each cold start. */
  start: z.boolean(),
  // Facts; nothing acts on them.
  stopSignal: z.string().nullable(),
  labels: textMap,
  exposedPorts: z.array(z.string()),
  volumes: z.array(z.string()),
});
export type ImageConfig = z.infer<typeof imageConfigSchema>;
