/** Readers of the event log: what they are told, in which order, and how little they cost. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventLimits } from "@perdure/protocol";
import { createMemoryStateStore } from "../../../../test/contract/memory-state-store.ts";
import { sampleEvent } from "../../../../test/contract/state-store-event.ts";
import { openSqliteStateStore } from "../state/sqlite/sqlite-state-store.ts";
import { EventLog } from "./event-log.ts";
import type { EventFilter, Followed } from "./event-log.ts";
import type { NewEvent, StateStore } from "./ports/state-store.ts";

const all: EventFilter = { tenant: "default", agents: null, kinds: null };
/** Waits that are over when the test says so. */
let waits: (() => void)[];
let nowMs: number;
let stop: AbortController;
beforeEach(() => {
  waits = [];
  nowMs = 1000;
  stop = new AbortController();
});
afterEach(() => stop.abort());

function logOver(state: StateStore): EventLog {
  const clock = {
    nowMs: () => nowMs,
    monotonicMs: () => nowMs,
    randomBytes: (count: number) => new Uint8Array(count),
    wait: (_ms: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        waits.push(resolve);
        if (signal?.aborted === true) reject(new Error("aborted"));
        signal?.addEventListener("abort", () => reject(new Error("aborted")));
      }),
  };
  return new EventLog({ state, clock, log: () => undefined });
}

const append = (state: StateStore, ...parts: Partial<NewEvent>[]): Promise<void> =>
  state.commit(parts.map((part) => ({ kind: "append-event", event: sampleEvent(part) })));

const inShort = (told: Followed | undefined): string =>
  told === undefined
    ? "end"
    : told.type === "event"
      ? `event ${told.event.id}`
      : told.type === "gap"
        ? `gap ${told.gap.from}-${told.gap.to}`
        : `position ${told.position}`;

async function reader(log: EventLog, after: number | null, filter = all) {
  const followed = await log.follow(filter, after, stop.signal);
  const iterator = followed[Symbol.asyncIterator]();
  const next = async (): Promise<string> =>
    inShort((await iterator.next()).value as Followed | undefined);
  return {
    next,
    take: async (count: number): Promise<string[]> => {
      const told: string[] = [];
      for (let i = 0; i < count; i++) told.push(await next());
      return told;
    },
  };
}

describe("a reader that follows", () => {
  it("is told what is kept after its position, then what comes", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, {}, {}, {});
    const { take, next } = await reader(log, 1);
    expect(await take(3)).toEqual(["position 1", "event 2", "event 3"]);
    const coming = next();
    await append(state, {});
    expect(await coming).toBe("event 4");
  });

  it("begins with what comes next where it gives no position", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, {}, {});
    const { next } = await reader(log, null);
    expect(await next()).toBe("position 2");
    const coming = next();
    await append(state, {});
    expect(await coming).toBe("event 3");
  });

  it("misses nothing of what is appended while it looks", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    const { take } = await reader(log, 0);
    const reading = take(301);
    for (let i = 0; i < 100; i++) {
      await append(state, {}, {}, {});
      if (i % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const expected = Array.from({ length: 300 }, (_, i) => `event ${i + 1}`);
    expect(await reading).toEqual(["position 0", ...expected]);
  });

  it("is told now and then where it is, also where nothing was for it", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    const { next } = await reader(log, 0, { ...all, kinds: ["failed"] });
    expect(await next()).toBe("position 0");
    const coming = next();
    await append(state, {}, {});
    await expect.poll(() => waits.length).toBeGreaterThan(1);
    waits.at(-1)?.();
    expect(await coming).toBe("position 2");
  });

  it("is told of a gap, at first and when it falls behind, then goes on", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, {}, {}, {}, {});
    await state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 2 }]);
    const { take, next } = await reader(log, 0);
    expect(await take(4)).toEqual(["position 0", "gap 1-2", "event 3", "event 4"]);
    await append(state, {}, {}, {});
    await state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 1 }]);
    expect(await take(2)).toEqual(["gap 5-6", "event 7"]);
    await state.commit([{ kind: "collect-events", sinceMs: 9e12, countMax: 1 }]);
    const coming = next();
    await append(state, {});
    expect(await coming).toBe("event 8");
  });

  it("is refused a position that is not there yet", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, {});
    for (const asked of [log.follow(all, 2, stop.signal), log.page(all, 2, 10)]) {
      await expect(asked).rejects.toMatchObject({
        code: "bad_request",
        message: "Cannot read events after 2: the newest is 1",
        details: { after: 2, last: 1 },
      });
    }
  });

  it("ends when its signal aborts, though nothing comes", async () => {
    const log = logOver(createMemoryStateStore());
    const { next } = await reader(log, 0);
    await next();
    const coming = next();
    stop.abort();
    expect(await coming).toBe("end");
  });

  it("asks the store for nothing while it does not read", async () => {
    const state = createMemoryStateStore();
    let asked = 0;
    const counting = {
      ...state,
      events: (query: Parameters<StateStore["events"]>[0]) => {
        asked += 1;
        return state.events(query);
      },
    };
    const log = logOver(counting);
    const { take } = await reader(log, 0);
    await take(1);
    for (let i = 0; i < 500; i++) await append(state, {});
    expect(asked).toBe(1);
    await take(500);
    expect(asked).toBe(6);
  });

  it("is one of a bounded number, and makes room when it goes, read or not", async () => {
    const log = logOver(createMemoryStateStore());
    const stops = Array.from({ length: eventLimits.readersMax }, () => new AbortController());
    for (const { signal } of stops) await log.follow(all, 0, signal);
    const refused = { code: "too_many", retry: "safe" };
    await expect(log.follow(all, 0, stop.signal)).rejects.toMatchObject(refused);
    stops[0]?.abort();
    await log.follow(all, 0, stop.signal);
    await expect(log.follow(all, 0, stop.signal)).rejects.toMatchObject(refused);
    for (const each of stops) each.abort();
  });
});

describe("a page", () => {
  it("leads to the next, to the end, and to what comes later", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, {}, { kind: "failed" }, {}, { kind: "failed" }, {});
    const first = await log.page(all, 0, 2);
    expect(first).toMatchObject({
      events: [{ id: 1 }, { id: 2 }],
      gap: null,
      next: 2,
      position: 2,
    });
    expect(first.events[0]).not.toHaveProperty("tenant");
    expect(await log.page(all, 2, 3)).toMatchObject({
      events: { length: 3 },
      next: null,
      position: 5,
    });
    const failed = { ...all, kinds: ["failed"] } as const;
    expect(await log.page(failed, 0, 1)).toMatchObject({ events: [{ id: 2 }], next: 2 });
    expect(await log.page(failed, 2, 1)).toMatchObject({ events: [{ id: 4 }], next: 4 });
    expect(await log.page(failed, 4, 1)).toMatchObject({ events: [], next: null, position: 5 });
    await state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 1 }]);
    expect(await log.page(all, 1, 10)).toMatchObject({ gap: { from: 2, to: 4 }, position: 5 });
    expect(await log.page(all, 4, 10)).toMatchObject({ gap: null });
  });

  it("shows nothing of another tenant", async () => {
    const state = createMemoryStateStore();
    const log = logOver(state);
    await append(state, { tenant: "other" }, {});
    expect(await log.page(all, 0, 10)).toMatchObject({ events: [{ id: 2 }] });
  });
});

describe("old events", () => {
  it("are forgotten by age without being asked", async () => {
    const state = createMemoryStateStore();
    logOver(state);
    await append(state, { atMs: 1 });
    nowMs = eventLimits.keptMs + 1000;
    for (let i = 0; i < 256; i++) await append(state, { atMs: nowMs });
    await expect
      .poll(async () => (await state.events({ ...all, after: 0, limit: 1 })).first)
      .toBe(2);
  });
});

describe("a daemon that is started again", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "perdure-events-"));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it("goes on with the log where it was, also where all of it was forgotten", async () => {
    const path = join(folder, "state.db");
    const before = await openSqliteStateStore({ path });
    await append(before, {}, {});
    await before.commit([{ kind: "collect-events", sinceMs: 9e12, countMax: 9 }]);
    await before.close();
    const after = await openSqliteStateStore({ path });
    const log = logOver(after);
    await append(after, {});
    const { take } = await reader(log, 1);
    expect(await take(3)).toEqual(["position 1", "gap 2-2", "event 3"]);
    await expect(log.page(all, 4, 1)).rejects.toMatchObject({ code: "bad_request" });
    await after.close();
  });
});
