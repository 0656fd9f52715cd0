/**
 * A watch that outlives sleeps. While it is cut nothing is told, and the agent is not woken for it: it is looked
 * at now and then whether the agent is awake again.
 */
import { PerdureError, watchEventSchema } from "@perdure/protocol";
import type { AgentView } from "@perdure/protocol";
import { jsonValues } from "./json-stream.ts";
import { pause } from "./pause.ts";
import type { StreamedAnswer } from "./transport.ts";

/**
 * What `watch` yields. Paths are absolute.
 *
 * - `ready`: always the first; whatever happens after it is told.
 * - `changed`: content was written; `attributes`: mode, owner, times or links.
 * - `moved`: within what is watched. Out of it is `removed`, into it `created`.
 * - `missed`: something may have happened that is not told: look at what is there.
 * - `interrupted`: the agent slept, stopped or moved on, or the daemon ended. `missed` follows once the
 *   watch goes on.
 */
export type FileEvent =
  | { readonly type: "ready" }
  | {
      readonly type: "created" | "changed" | "removed" | "attributes";
      readonly path: string;
    }
  | { readonly type: "moved"; readonly path: string; readonly from: string }
  | { readonly type: "missed" }
  | { readonly type: "interrupted"; readonly reason: string };

export interface WatchSource {
  /** `wakes` false: refuses with `agent_state` where the agent is not awake. */
  readonly open: (wakes: boolean) => Promise<StreamedAnswer>;
  readonly show: () => Promise<AgentView>;
  readonly signal: AbortSignal | undefined;
  /** Whether it goes on after it was interrupted. */
  readonly reattach: boolean;
}

const LOOK_FIRST_MS = 100;
const LOOK_LONGEST_MS = 2_000;
/** A daemon that is not back after so long will not be. */
const DAEMON_AWAY_MS = 60_000;

export async function* watchEvents(source: WatchSource): AsyncGenerator<FileEvent> {
  let answer = await source.open(true);
  for (let again = false; ; again = true) {
    const interrupted = yield* readEvents(answer, again);
    if (interrupted === null) return;
    yield interrupted;
    if (!source.reattach) return;
    answer = await openAgain(source);
  }
}

/** Null where the watched path is gone, else why there is no more for now. */
async function* readEvents(
  { bytes }: StreamedAnswer,
  again: boolean,
): AsyncGenerator<FileEvent, (FileEvent & { type: "interrupted" }) | null> {
  try {
    for await (const event of jsonValues(watchEventSchema, bytes)) {
      switch (event.type) {
        case "error":
          throw PerdureError.fromBody(event.error);
        case "end":
          return null;
        case "interrupted":
          return event;
        case "ready":
          yield again ? { type: "missed" } : event;
          break;
        case "created":
        case "changed":
        case "removed":
        case "moved":
        case "attributes":
        case "missed":
          yield event;
      }
    }
    return { type: "interrupted", reason: "the connection ended" };
  } catch (error) {
    if (!(error instanceof PerdureError) || error.code !== "interrupted") throw error;
    return { type: "interrupted", reason: error.message };
  }
}

/** Resolves when the agent is awake and watched again, however long that takes. */
async function openAgain({ open, show, signal }: WatchSource): Promise<StreamedAnswer> {
  let answeredAt = performance.now();
  for (let ms = LOOK_FIRST_MS; ; ms = Math.min(2 * ms, LOOK_LONGEST_MS)) {
    await pause(ms, signal);
    try {
      const { state } = await show();
      answeredAt = performance.now();
      if (state === "awake") return await open(false);
    } catch (error) {
      if (!(error instanceof PerdureError) || !passing.has(error.code)) throw error;
      if (performance.now() - answeredAt > DAEMON_AWAY_MS) throw error;
    }
  }
}

/** It fell asleep in between, or the daemon is on its way back. */
const passing = new Set<string>(["agent_state", "daemon_unreachable", "interrupted"]);
