/**
 * The event log as readers see it: a page, or what comes as it comes. A reader asks the store for what
 * is next only when it has taken what came before: a slow one costs no memory, and one that falls behind
 * what is kept is told of the gap.
 */
import { agentIdSchema, eventLimits, PerdureError } from "@perdure/protocol";
import type { AgentEvent, EventGap, EventKind, EventPage } from "@perdure/protocol";
import { noSuchAgent } from "./no-such-agent.ts";
import type { Clock } from "./ports/clock.ts";
import type { Log } from "./ports/log.ts";
import type { StateStore, StoredEvents } from "./ports/state-store.ts";

export interface EventFilter {
  readonly tenant: string;
  /** Names or ids; null: all. */
  readonly agents: readonly string[] | null;
  readonly kinds: readonly EventKind[] | null;
}

/** What a reader that follows is told. */
export type Followed =
  | { readonly type: "event"; readonly event: AgentEvent }
  | { readonly type: "gap"; readonly gap: EventGap }
  /** Nothing new for a while; the log has been read up to here. */
  | { readonly type: "position"; readonly position: number };

export interface EventLogOptions {
  readonly state: StateStore;
  readonly clock: Clock;
  readonly log: Log;
}

/** Events that one question to the store answers. */
const PAGE = 100;
/** Commits with events from one collection to the next. */
const COLLECT_EVERY = 256;

export class EventLog {
  readonly #options: EventLogOptions;
  #readers = 0;
  #commits = 0;
  #appended = Promise.withResolvers<undefined>();

  constructor(options: EventLogOptions) {
    this.#options = options;
    options.state.onEvents(() => {
      this.#appended.resolve(undefined);
      this.#appended = Promise.withResolvers();
      if (this.#commits++ % COLLECT_EVERY === 0) void this.#collect();
    });
  }

  /** @param ref a name or an id @throws `agent_not_found` where it is no agent's, nor in what is kept of removed ones */
  async assertTellsOf(tenant: string, ref: string): Promise<void> {
    const { state } = this.#options;
    const id = agentIdSchema.safeParse(ref);
    const agent = id.success ? await state.agent(id.data) : await state.agentByName(tenant, ref);
    if (agent?.tenant === tenant) return;
    const kept = await state.events({ tenant, agents: [ref], kinds: null, after: 0, limit: 1 });
    if (kept.events.length === 0) throw noSuchAgent(ref);
  }

  /** @param after the newest id that is known @throws `bad_request` for an id that is not there yet */
  async page(filter: EventFilter, after: number, limit: number): Promise<EventPage> {
    const stored = await this.#options.state.events({ ...filter, after, limit });
    assertKnown(after, stored);
    const { events, scannedTo } = stored;
    return {
      events: [...events],
      gap: gapOf(after, stored),
      next: scannedTo < stored.last ? scannedTo : null,
      position: scannedTo,
    };
  }

  /**
   * From `after` on, without end; null: what is recorded from now on. Ends soon after `signal` aborts; it
   * must once the reader has gone, whether it read to the end or not.
   *
   * @throws `bad_request` for an id that is not there yet, `too_many` beyond `readersMax`
   */
  async follow(
    filter: EventFilter,
    after: number | null,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Followed>> {
    const start = await this.#options.state.events({ ...filter, after: after ?? 0, limit: 0 });
    if (after !== null) assertKnown(after, start);
    if (this.#readers >= eventLimits.readersMax) {
      throw new PerdureError(
        "too_many",
        `Cannot follow the events: ${eventLimits.readersMax} readers do so already`,
        { hint: "Close one that is no longer needed, or read pages with follow=false." },
      );
    }
    this.#readers += 1;
    const gone = (): void => void (this.#readers -= 1);
    if (signal.aborted) gone();
    else signal.addEventListener("abort", gone, { once: true });
    return this.#followed(filter, after ?? start.last, signal);
  }

  async *#followed(
    filter: EventFilter,
    after: number,
    signal: AbortSignal,
  ): AsyncGenerator<Followed> {
    yield { type: "position", position: after };
    let position = after;
    while (!signal.aborted) {
      const appended = this.#appended.promise;
      const stored = await this.#options.state.events({ ...filter, after: position, limit: PAGE });
      const gap = gapOf(position, stored);
      if (gap !== null) yield { type: "gap", gap };
      for (const event of stored.events) yield { type: "event", event };
      position = stored.scannedTo;
      if (position < stored.last) continue;
      if (await this.#isQuiet(appended, signal)) yield { type: "position", position };
    }
  }

  /** Waits for what is appended next: false. True where nothing was for as long as a heartbeat. */
  async #isQuiet(appended: Promise<undefined>, signal: AbortSignal): Promise<boolean> {
    const stop = new AbortController();
    const late = this.#options.clock
      .wait(eventLimits.heartbeatMs, AbortSignal.any([stop.signal, signal]))
      .then(
        () => true,
        () => false,
      );
    try {
      return await Promise.race([appended.then(() => false), late]);
    } finally {
      stop.abort();
    }
  }

  async #collect(): Promise<void> {
    const { state, clock, log } = this.#options;
    const sinceMs = clock.nowMs() - eventLimits.keptMs;
    try {
      await state.commit([{ kind: "collect-events", sinceMs, countMax: eventLimits.keptMax }]);
    } catch (error) {
      log("warn", "Old events could not be forgotten", {
        message: PerdureError.from(error).message,
      });
    }
  }
}

function assertKnown(after: number, { last }: StoredEvents): void {
  if (after <= last) return;
  throw new PerdureError(
    "bad_request",
    `Cannot read events after ${after}: the newest is ${last}`,
    {
      hint: "The log was begun anew, or the id is of another daemon: start without one.",
      details: { after, last },
    },
  );
}

function gapOf(after: number, { first }: StoredEvents): EventGap | null {
  return after < first - 1 ? { kind: "gap", from: after + 1, to: first - 1 } : null;
}
