/**
 * Images as the API, SDK and CLI show them, what an archive may hold, and what a recipe may say.
 *
 * An image that was imported keeps what its container configuration says (`ImageConfig`): how programs
 * run in agents made from it, unless a call says otherwise.
 */
import { z } from "zod";
import { GIB, MIB } from "./agent.ts";
import { errorBodySchema } from "./api.ts";
import { digestSchema } from "./id.ts";
import { flag } from "./query.ts";

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

/** Bounds of a recipe. */
export const recipeLimits = {
  packagesMax: 500,
  finishBytesMax: 64 * 1024,
  setuidMax: 100,
  commandMax: 100,
  textBytesMax: 4096,
} as const;

const recipeText = z
  .string()
  .max(recipeLimits.textBytesMax)
  .refine((text) => !text.includes("\0"), "must not hold a NUL character");
const absolutePath = recipeText.startsWith("/");

/** What an image is built of, beyond what the default image has. Everything may be left out. */
export const recipeSchema = z.strictObject({
  /** Names of Debian packages. */
  packages: z
    .array(z.string().regex(/^[a-z0-9][a-z0-9+.-]{1,127}$/, "must be a package's name"))
    .max(recipeLimits.packagesMax)
    .default([]),
  /** A shell script, run as root with the new root file system as its own, once all packages are there. */
  finish: z
    .string()
    .refine(
      (text) => new TextEncoder().encode(text).length <= recipeLimits.finishBytesMax,
      `must not be longer than ${recipeLimits.finishBytesMax} bytes`,
    )
    .refine((text) => !text.includes("\0"), "must not hold a NUL character")
    .default(""),
  /** Programs that may gain rights when run; any other that would is refused. */
  setuid: z.array(absolutePath).max(recipeLimits.setuidMax).default([]),
  /** How programs run, as `ImageConfig` has it. */
  user: z
    .string()
    .regex(/^[\x21-\x7e]{1,64}$/)
    .optional(),
  cwd: absolutePath.optional(),
  env: z.record(z.string().regex(/^[^=\0]+$/), recipeText).default({}),
  entrypoint: z.array(recipeText).max(recipeLimits.commandMax).default([]),
  cmd: z.array(recipeText).max(recipeLimits.commandMax).default([]),
  start: z.boolean().default(true),
});
/** A recipe as it is written. */
export type RecipeInput = z.input<typeof recipeSchema>;
export type Recipe = z.output<typeof recipeSchema>;

/** An image on this host. Times are milliseconds since the epoch. */
export const imageViewSchema = z.object({
  id: digestSchema,
  /** Names that stand for it now; none where newer images have taken them. */
  names: z.array(z.string()),
  /** The name that it was made under. */
  madeAs: z.string(),
  /** Length of its root file system: the smallest disk that can be made from it. */
  bytes: z.number().int().nonnegative(),
  /** What its files take on the disk; what it shares with other images counts too. */
  storedBytes: z.number().int().nonnegative(),
  kernelVersion: z.string(),
  guestAgentVersion: z.string(),
  /** How programs run in its agents; null: as user `user`, in its home. */
  config: imageConfigSchema.nullable(),
  /** The container image that it was imported from; null where it was built here. */
  archive: z
    .object({
      digest: z.string(),
      reference: z.string().nullable(),
      /** What was not taken over, or deserves a look. */
      notices: z.array(z.string()),
    })
    .nullable(),
  /** Debian packages in it; none where it was imported. */
  packages: z.array(z.object({ name: z.string(), version: z.string() })),
  /** Names of this data directory's agents that stand on it. */
  agents: z.array(z.string()),
  createdAtMs: z.number().int(),
});
export type ImageView = z.infer<typeof imageViewSchema>;

/** `GET /v1/images`: by name. Without their packages: `GET /v1/images/:image` has those. */
export const imagesResponseSchema = z.object({ images: z.array(imageViewSchema) });

/** `POST /v1/images?name=&ref=&start=`: the body is the archive. */
export const importImageQuerySchema = z.strictObject({
  name: imageNameSchema,
  /** Which image is meant where the archive holds several, as the archive calls it. */
  ref: z.string().min(1).max(512).optional(),
  /** `false`: agents do not start its program by themselves. */
  start: flag("true"),
});

/** `POST /v1/images/build` */
export const buildRequestSchema = z.strictObject({ name: imageNameSchema, recipe: recipeSchema });

/** An import or build answers a stream of these; `image` or `error` is always the last. */
export const imageEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("progress"), message: z.string() }),
  z.object({ type: z.literal("image"), image: imageViewSchema }),
  /** Nothing of it is left. */
  z.object({ type: z.literal("error"), error: errorBodySchema }),
]);
export type ImageEvent = z.infer<typeof imageEventSchema>;
