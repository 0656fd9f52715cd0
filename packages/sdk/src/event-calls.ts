/** The event log. Part of `Perdure`; examples run as they stand. */
import { eventLimits, followedEventSchema, PerdureError, routes } from "@perdure/protocol";
import type { AgentEvent, EventGap, EventKind, EventPage } from "@perdure/protocol";
import { StoreCalls } from "./store-calls.ts";
import { pause } from "./pause.ts";
import { readServerSentEvents } from "./server-sent-events.ts";
import type { CallOptions } from "./transport.ts";

export interface EventOptions extends CallOptions {
  /** Name or id; default: every agent. */
  readonly agent?: string;
  readonly kinds?: readonly EventKind[];
  /** The newest event that is known. Default: what is recorded from now on; not following, all that is kept. */
  readonly after?: number;
}

/** Silence after which the daemon is taken to be lost. */
const SILENCE_MS = 3 * eventLimits.heartbeatMs;
/** Waits before connecting again: the first, doubled with each try up to the last. */
const AGAIN_FIRST_MS = 100;
const AGAIN_LAST_MS = 5_000;

export class EventCalls extends StoreCalls {
  /**
   * What becomes of agents, as it happens. Where the connection breaks or the daemon is started again it
   * goes on by itself where it was, for as long as it takes; a `gap` says which events it came too late for.
   *
   * @param options.follow false: ends after the newest event that is kept
   * @throws `daemon_unreachable` where no daemon answers at first; `bad_request` for an `after` that is not there yet
   * @example
   * for await (const event of perdure.events({ agent: "a1", follow: false })) {
   *   if (event.kind !== "gap") console.log(event.id, event.kind, event.data);
   * }
   */
  async *events(
    options: EventOptions & { readonly follow?: boolean } = {},
  ): AsyncGenerator<AgentEvent | EventGap> {
    if (options.follow === false) yield* this.#kept(options);
    else yield* this.#followed(options);
  }

  /**
   * One page of the log. Pass its `next` as `after` for the next one; null on the last.
   *
   * @param options.limit 1 to 1000, default 100
   * @example
   * const { events, position } = await perdure.eventPage({ limit: 20 });
   */
  eventPage(options: EventOptions & { readonly limit?: number } = {}): Promise<EventPage> {
    const { limit, signal } = options;
    const query = { ...queryOf(options), limit, follow: false };
    return this.call(routes.events, {}, { query, signal });
  }

  async *#kept(options: EventOptions): AsyncGenerator<AgentEvent | EventGap> {
    let { after } = options;
    do {
      const page = await this.eventPage({ ...options, ...(after === undefined ? {} : { after }) });
      if (page.gap !== null) yield page.gap;
      yield* page.events;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  async *#followed(options: EventOptions): AsyncGenerator<AgentEvent | EventGap> {
    const { signal } = options;
    let { after } = options;
    let isKnown = false;
    let waitMs = AGAIN_FIRST_MS;
    for (;;) {
      // Of this connection alone; leaving the loop ends it, too.
      const silent = new AbortController();
      const until = signal === undefined ? silent.signal : AbortSignal.any([signal, silent.signal]);
      try {
        const { method, path } = routes.events;
        const query = queryOf({ ...options, ...(after === undefined ? {} : { after }) });
        const { bytes } = await this.transport.stream({ method, path, query, signal: until });
        isKnown = true;
        for await (const { id, data } of readServerSentEvents(bytes, SILENCE_MS, silent)) {
          waitMs = AGAIN_FIRST_MS;
          if (id !== null) after = Number(id);
          const event = followedEventSchema.safeParse(data);
          // Of a newer daemon there may be kinds that are not known here.
          if (event.success) yield event.data;
        }
      } catch (error) {
        if (!isKnown || signal?.aborted === true || !isLoss(error)) throw error;
      } finally {
        silent.abort();
      }
      await pause(waitMs, signal);
      waitMs = Math.min(2 * waitMs, AGAIN_LAST_MS);
    }
  }
}

function queryOf({ agent, kinds, after }: EventOptions) {
  return { agent, kind: kinds?.join(","), after };
}

/** The daemon or the way to it is gone for now. `cancelled` here is our own word: it was silent. */
function isLoss(error: unknown): boolean {
  return (
    error instanceof PerdureError &&
    ["interrupted", "daemon_unreachable", "cancelled"].includes(error.code)
  );
}
