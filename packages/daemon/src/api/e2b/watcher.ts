/**
 * Watches of folders: as a stream, or for clients that ask now and then. Where an agent sleeps, changes are not told
 * and none happen; a stream ends with that, and a watch that is asked now and then begins anew when it is asked. What
 * may have been missed is said, once, as an error.
 */
import { posix } from "node:path";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { PerdureError } from "@perdure/protocol";
import type { AgentId } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";
import type { WatchEvent } from "../../core/file-command.ts";
import type { FileChange } from "../../core/ports/guest-link.ts";
import type { Caller } from "./caller.ts";
import type { E2bContext } from "./e2b-context.ts";
import { isRefused } from "./inside-path.ts";
import { EventType, FilesystemEventSchema } from "./schema/filesystem.mjs";
import type { FilesystemEvent } from "./schema/filesystem.mjs";

export interface WatchWish {
  readonly target: Target;
  readonly path: string;
  readonly user: string;
  readonly recursive: boolean;
  readonly wakes: boolean;
}

/** `ready` first, and once. @throws `interrupted`, or what says that changes were missed */
export async function* watchEvents(
  commands: Commands,
  { target, ...wish }: WatchWish,
  signal: AbortSignal,
): AsyncGenerator<"ready" | FilesystemEvent> {
  const { path, user } = wish;
  for await (const change of await commands.watch({ ...target, ...wish }, signal)) {
    switch (change.type) {
      case "ready":
        yield "ready";
        break;
      case "interrupted":
        throw interrupted(change);
      case "missed":
        throw missed();
      default:
        for (const type of await typesOf(commands, { ...target, user }, change)) {
          const name = type === EventType.RENAME ? (change.from ?? change.path) : change.path;
          yield create(FilesystemEventSchema, { name: posix.relative(path, name), type });
        }
    }
  }
}

type Told = Extract<FileChange, { readonly path: string }>;

async function typesOf(
  commands: Commands,
  target: Target & { readonly user: string },
  { type, path }: Told,
): Promise<readonly EventType[]> {
  switch (type) {
    case "changed":
      return [EventType.WRITE];
    case "removed":
      return [EventType.REMOVE];
    case "attributes":
      return [EventType.CHMOD];
    case "moved":
      return [EventType.RENAME, EventType.CREATE];
    case "created":
      // A file that is put in place whole has been written by then.
      return (await isFile(commands, { ...target, path }))
        ? [EventType.CREATE, EventType.WRITE]
        : [EventType.CREATE];
  }
}

async function isFile(
  commands: Commands,
  place: Target & { readonly path: string; readonly user: string },
): Promise<boolean> {
  try {
    const { kind, size } = await commands.stat(place);
    return kind === "file" && size > 0;
  } catch (error) {
    if (error instanceof PerdureError && error.code.startsWith("path_")) return false;
    throw error;
  }
}

function interrupted({ reason }: Extract<WatchEvent, { type: "interrupted" }>): PerdureError {
  return new PerdureError(
    "interrupted",
    `The watch ends (${reason}): what changes from here on is not told`,
    { hint: "Watch again, and look at the folder anew." },
  );
}

function missed(): ConnectError {
  return new ConnectError(
    "Changes were missed: look at the folder anew. What changes from here on is told to a new watch",
    Code.DataLoss,
  );
}

const WATCHERS_MAX = 1_000;
const EVENTS_MAX = 10_000;

interface Watcher {
  readonly agent: AgentId;
  readonly wish: Omit<WatchWish, "wakes">;
  readonly stop: AbortController;
  events: FilesystemEvent[];
  /** Why it tells nothing any more; null while it does. */
  ended: Error | null;
}

export class Watchers {
  readonly #context: E2bContext;
  readonly #watchers = new Map<string, Watcher>();

  constructor(context: E2bContext) {
    this.#context = context;
  }

  /** Resolves when changes are told. */
  async create({ id, ...wish }: Omit<WatchWish, "wakes"> & { readonly id: AgentId }) {
    if (this.#watchers.size >= WATCHERS_MAX) {
      throw new PerdureError("too_many", `There are ${WATCHERS_MAX} watchers already`);
    }
    const watcher: Watcher = {
      ...{ agent: id, wish, stop: new AbortController(), events: [], ended: null },
    };
    await this.#begin(watcher);
    const watcherId = Buffer.from(this.#context.clock.randomBytes(16)).toString("hex");
    this.#watchers.set(watcherId, watcher);
    return watcherId;
  }

  /** What happened since it was asked last. Begins anew where it had ended; that says so once. */
  async take(caller: Caller, watcherId: string): Promise<FilesystemEvent[]> {
    const watcher = this.#find(caller, watcherId);
    if (watcher.events.length > 0) return watcher.events.splice(0);
    const { ended } = watcher;
    if (ended === null) return [];
    watcher.ended = null;
    try {
      await this.#begin(watcher);
    } catch (error) {
      this.remove(caller, watcherId);
      throw error;
    }
    throw new ConnectError(
      "Changes may have been missed while the sandbox rested: look at the folder anew",
      Code.DataLoss,
    );
  }

  remove(caller: Caller, watcherId: string): void {
    this.#find(caller, watcherId).stop.abort();
    this.#watchers.delete(watcherId);
  }

  #find({ id }: Caller, watcherId: string): Watcher {
    const found = this.#watchers.get(watcherId);
    if (found?.agent === id) return found;
    throw new ConnectError("There is no such watcher", Code.NotFound);
  }

  async #begin(watcher: Watcher): Promise<void> {
    const { commands, closing } = this.#context;
    const signal = AbortSignal.any([watcher.stop.signal, closing]);
    const events = watchEvents(commands, { ...watcher.wish, wakes: true }, signal);
    await events.next();
    void this.#collect(watcher, events);
  }

  async #collect(watcher: Watcher, events: AsyncGenerator<"ready" | FilesystemEvent>) {
    try {
      for await (const event of events) {
        if (event === "ready") continue;
        if (watcher.events.push(event) > EVENTS_MAX) throw missed();
      }
      watcher.ended = new Error("What is watched is gone");
    } catch (error) {
      watcher.ended = error as Error;
      if (isRefused(error, "agent_not_found")) watcher.stop.abort();
    }
  }
}
