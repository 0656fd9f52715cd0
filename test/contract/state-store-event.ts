/** The part of the StateStore suite about the event log. */
import { expect, it } from "vitest";
import type {
  EventQuery,
  NewEvent,
  StateStore,
} from "../../packages/daemon/src/core/ports/state-store.ts";
import { sampleAgent } from "./state-store-sample.ts";

const one = sampleAgent("one");
const two = sampleAgent("two");

export function sampleEvent(part: Partial<NewEvent> = {}): NewEvent {
  const { id: agent, name, tenant } = one;
  const data = { from: "awake", to: "asleep", count: 1, yes: true, none: null, text: "ü“”" };
  return { agent, name, tenant, generation: 3, atMs: 1000, kind: "state", data, ...part };
}

function withoutTenant(event: NewEvent): Partial<NewEvent> {
  return Object.fromEntries(Object.entries(event).filter(([name]) => name !== "tenant"));
}

export function eventContract(store: () => StateStore): void {
  const append = (...parts: Partial<NewEvent>[]): Promise<void> =>
    store().commit(parts.map((part) => ({ kind: "append-event", event: sampleEvent(part) })));
  const read = (query: Partial<EventQuery> = {}) =>
    store().events({
      tenant: "default",
      agents: null,
      kinds: null,
      after: 0,
      limit: 100,
      ...query,
    });
  const ids = async (query: Partial<EventQuery> = {}): Promise<number[]> =>
    (await read(query)).events.map(({ id }) => id);
  const ofTwo = { agent: two.id, name: two.name };

  it("begins empty", async () => {
    expect(await read()).toEqual({ events: [], scannedTo: 0, first: 1, last: 0 });
  });

  it("numbers events in the order of their commits, and gives them back as they were", async () => {
    await append({}, { kind: "paused", data: {} });
    await append({ generation: 4 });
    const { events, ...bounds } = await read();
    expect(events).toEqual([
      { ...withoutTenant(sampleEvent()), id: 1 },
      { ...withoutTenant(sampleEvent({ kind: "paused", data: {} })), id: 2 },
      { ...withoutTenant(sampleEvent({ generation: 4 })), id: 3 },
    ]);
    expect(bounds).toEqual({ scannedTo: 3, first: 1, last: 3 });
  });

  it("keeps an event with its change, or neither", async () => {
    const insert = { kind: "insert-agent", agent: one } as const;
    const event = { kind: "append-event", event: sampleEvent() } as const;
    await store().commit([insert, event]);
    await expect(store().commit([event, insert])).rejects.toThrow();
    expect(await ids()).toEqual([1]);
    await append({});
    expect(await ids()).toEqual([1, 2]);
  });

  it("numbers those of many commits at once without a gap", async () => {
    await Promise.all(Array.from({ length: 40 }, () => append({}, {})));
    expect(await ids()).toEqual(Array.from({ length: 80 }, (_, i) => i + 1));
  });

  it("answers by tenant, agent and kind, page by page", async () => {
    await append({}, ofTwo, { kind: "failed" }, { tenant: "other" }, { ...ofTwo, kind: "failed" });
    expect(await ids()).toEqual([1, 2, 3, 5]);
    expect(await ids({ tenant: "other" })).toEqual([4]);
    expect(await ids({ tenant: "none" })).toEqual([]);
    expect(await ids({ agents: ["one"] })).toEqual([1, 3]);
    expect(await ids({ agents: [two.id] })).toEqual([2, 5]);
    expect(await ids({ agents: ["one", two.id] })).toEqual([1, 2, 3, 5]);
    expect(await ids({ agents: [] })).toEqual([]);
    expect(await ids({ kinds: ["failed"] })).toEqual([3, 5]);
    expect(await ids({ kinds: ["failed"], agents: ["two"] })).toEqual([5]);
    expect(await ids({ kinds: ["paused", "state"], after: 1 })).toEqual([2]);
    expect(await read({ limit: 2 })).toMatchObject({ scannedTo: 2, first: 1, last: 5 });
    expect(await read({ limit: 2, after: 2 })).toMatchObject({
      scannedTo: 5,
      events: { length: 2 },
    });
    expect(await read({ limit: 3, after: 2 })).toMatchObject({
      scannedTo: 5,
      events: { length: 2 },
    });
    expect(await read({ agents: ["one"], limit: 3 })).toMatchObject({ scannedTo: 5 });
    expect(await read({ limit: 0, after: 1 })).toMatchObject({ events: [], scannedTo: 1, last: 5 });
    expect(await read({ after: 99 })).toMatchObject({ events: [], last: 5 });
  });

  it("forgets the oldest only, by age and by count, and never uses a number again", async () => {
    const collect = (sinceMs: number, countMax: number): Promise<void> =>
      store().commit([{ kind: "collect-events", sinceMs, countMax }]);
    await append({ atMs: 1 }, { atMs: 2 }, { atMs: 9 }, { atMs: 3 }, { atMs: 9 });
    await collect(0, 100);
    expect(await ids()).toEqual([1, 2, 3, 4, 5]);
    await collect(3, 100);
    // The clock went back at the fourth: it stays, as a gap in the middle could not be told.
    expect(await ids()).toEqual([3, 4, 5]);
    await collect(0, 2);
    expect(await read()).toMatchObject({ events: [{ id: 4 }, { id: 5 }], first: 4, last: 5 });
    await collect(10, 100);
    expect(await read()).toEqual({ events: [], scannedTo: 5, first: 6, last: 5 });
    await append({});
    expect(await ids()).toEqual([6]);
  });

  it("tells a listener of each commit with events, once they can be read", async () => {
    const read1: number[] = [];
    const readings: Promise<void>[] = [];
    store().onEvents(() => {
      readings.push(read().then(({ last }) => void read1.push(last)));
    });
    await append({}, {});
    await store().commit([{ kind: "collect-events", sinceMs: 0, countMax: 100 }]);
    await append({});
    await Promise.all(readings);
    expect(read1).toEqual([2, 3]);
  });
}
