/** Files of an agent over the API, but for their bytes. A path is absolute; no symbolic link in it is followed. */
import { z } from "zod";
import { errorBodySchema, fileQuerySchema } from "./api.ts";
import { flag } from "./query.ts";

const { path, user, mode } = fileQuerySchema.shape;

/** `GET …/files/stat|list?path=&user=` */
export const pathQuerySchema = fileQuerySchema.omit({ mode: true });

/** What stands at a path; a link is described, not followed. */
export const pathFactsSchema = z.object({
  kind: z.enum(["file", "directory", "link", "other"]),
  size: z.number().int(),
  /** Permission bits, octal. */
  mode: z.string().regex(/^[0-7]{3,4}$/),
  uid: z.number().int(),
  gid: z.number().int(),
  mtimeMs: z.number().int(),
});
export type PathFacts = z.infer<typeof pathFactsSchema>;

const streamEndSchema = z.object({ type: z.literal("end") });
/** The stream ends here because reading failed. */
const streamErrorSchema = z.object({ type: z.literal("error"), error: errorBodySchema });

/** `GET …/files/list?path=` answers a stream of these, in no order; `end` or `error` is always the last. */
export const folderEventSchema = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("entry"),
    /** What is not UTF-8 in it comes as U+FFFD: such an entry is seen, but cannot be named. */
    name: z.string(),
    ...pathFactsSchema.shape,
    /** Where a link leads, as it is written there; null: not a link. */
    linkTarget: z.string().nullable(),
  }),
  streamEndSchema,
  streamErrorSchema,
]);
export type FolderEvent = z.infer<typeof folderEventSchema>;

/** `POST …/files/folder` */
export const makeFolderRequestSchema = z.strictObject({
  path,
  user,
  /** Octal. */
  mode: mode.unwrap().default("755"),
  /** Folders on the way that are missing are made, and one that is there already is fine. */
  parents: z.boolean().default(false),
});

/** `POST …/files/move` */
export const movePathRequestSchema = z.strictObject({
  from: path,
  to: path,
  user,
  /** What stands at `to` gives way. */
  replace: z.boolean().default(false),
});

/** `DELETE …/files?path=&user=&recursive=` */
export const removePathQuerySchema = z.strictObject({ path, user, recursive: flag("false") });

/** `GET …/files/watch?path=&user=&recursive=&wakes=` */
export const watchQuerySchema = z.strictObject({
  path,
  user,
  /** What is below folders in it, too. */
  recursive: flag("false"),
  /** `false`: an agent that is asleep is not woken, but answered as `agent_state`. */
  wakes: flag("true"),
});

/**
 * `GET …/files/watch?path=` answers a stream of these. The first is `ready`; the last is `interrupted`, `error`,
 * or `end` where the path itself is gone.
 */
export const watchEventSchema = z.discriminatedUnion("type", [
  /** Whatever happens from here on is told. */
  z.object({ type: z.literal("ready") }),
  z.object({ type: z.literal("created"), path: z.string() }),
  /** Content was written. */
  z.object({ type: z.literal("changed"), path: z.string() }),
  z.object({ type: z.literal("removed"), path: z.string() }),
  z.object({ type: z.literal("moved"), path: z.string(), from: z.string() }),
  /** Mode, owner, times or links. */
  z.object({ type: z.literal("attributes"), path: z.string() }),
  /** There was more than could be kept: what is below the path must be looked at anew. */
  z.object({ type: z.literal("missed") }),
  /** The agent slept, stopped or moved on, or the daemon ended: nothing is told from here on. */
  z.object({ type: z.literal("interrupted"), reason: z.string() }),
  streamEndSchema,
  streamErrorSchema,
]);
export type WatchEventLine = z.infer<typeof watchEventSchema>;
