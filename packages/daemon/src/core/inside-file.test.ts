/** Files of an awake agent: what is handed out is begun, ends when it is left, and wakes only who may be woken. */
import { describe, expect, test } from "vitest";
import { PerdureError } from "@perdure/protocol";
import { create, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import type { Actor } from "./actor.ts";
import { Callers } from "./callers.ts";
import { listFolder, watch } from "./inside-file.ts";
import { Lane } from "./lane.ts";
import type { FileChange } from "./ports/guest-link.ts";

const target = { tenant: "default", agent: "a1", path: "/d", user: "user", recursive: true };

/** A source of the guest link that says what it is asked. */
class Source<T> implements AsyncIterable<T> {
  readonly #values: (T | Error)[];
  asked = 0;
  left = 0;
  silent = Promise.withResolvers<IteratorResult<T>>();

  constructor(...values: (T | Error)[]) {
    this.#values = values;
  }

  [Symbol.asyncIterator](): AsyncIterator<T> {
    return {
      next: () => {
        this.asked += 1;
        const value = this.#values.shift();
        if (value === undefined) return this.silent.promise;
        if (value instanceof Error) return Promise.reject(value);
        return Promise.resolve({ done: false, value });
      },
      return: () => {
        this.left += 1;
        this.silent.resolve({ done: true, value: undefined });
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }
}

function actorWith(link: object): Actor {
  const agent = { state: "awake", name: "a1" };
  const callers = new Callers({ monotonicMs: () => 0 } as never);
  const parts = { lane: new Lane(), agent, machine: {}, link, callers };
  return { ...parts, assertNotPaused: () => undefined } as never;
}

const noWake = (): Promise<never> => Promise.reject(new Error("It was woken"));
const never = new AbortController().signal;

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const value of values) list.push(value);
  return list;
}

describe("a list", () => {
  test("that is refused is an error of the call", async () => {
    const refusal = new PerdureError("path_not_folder", "Cannot list");
    const actor = actorWith({ listFolder: () => new Source(refusal) });
    await expect(listFolder(actor, noWake, target)).rejects.toBe(refusal);
    expect(actor.lane.idle).toBe(true);
  });

  test("is begun when it is handed out, asked no further, and does not hold the lane", async () => {
    const source = new Source("one", "two", "three");
    const actor = actorWith({ listFolder: () => source });
    const entries = await listFolder(actor, noWake, target);
    expect([source.asked, actor.lane.idle]).toEqual([1, true]);
    const iterator = entries[Symbol.asyncIterator]();
    expect([(await iterator.next()).value, (await iterator.next()).value]).toEqual(["one", "two"]);
    expect(source.asked).toBe(2);
    // It keeps the agent awake for as long as it is read.
    expect(actor.callers.count).toBe(1);
    await iterator.return?.();
    expect(actor.callers.count).toBe(0);
    expect(source.left).toBe(1);
  });

  test("that is left before its first entry was taken is ended inside", async () => {
    const source = new Source("one");
    const entries = await listFolder(actorWith({ listFolder: () => source }), noWake, target);
    await entries[Symbol.asyncIterator]().return?.();
    expect(source.left).toBe(1);
  });

  test("of an empty folder has nothing, and ends", async () => {
    const source = new Source<never>();
    source.silent.resolve({ done: true, value: undefined });
    const entries = await listFolder(actorWith({ listFolder: () => source }), noWake, target);
    expect(await all(entries)).toEqual([]);
  });
});

describe("a watch", () => {
  const ready = { type: "ready" } as const;
  const made = { type: "created", path: "/d/a" } as const;
  const open = (source: Source<FileChange>, signal = never) =>
    watch(actorWith({ watch: () => source }), noWake, target, signal);

  test("tells a cut link as its last event, with why", async () => {
    const cut = new PerdureError("interrupted", "It ended", { details: { reason: "sleep" } });
    const source = new Source<FileChange>(ready, made, cut);
    const interrupted = { type: "interrupted", reason: "sleep" };
    expect(await all(await open(source))).toEqual([ready, made, interrupted]);
    expect(source.left).toBe(1);
  });

  test("throws what else breaks it", async () => {
    const broken = new PerdureError("guest_protocol_violation", "Nonsense");
    await expect(all(await open(new Source<FileChange>(ready, broken)))).rejects.toBe(broken);
  });

  test("keeps no agent awake", async () => {
    const actor = actorWith({ watch: () => new Source<FileChange>(ready) });
    const events = await watch(actor, noWake, target, never);
    await events[Symbol.asyncIterator]().next();
    expect(actor.callers.count).toBe(0);
  });

  test("of what is silent ends when it is aborted, inside too", async () => {
    const source = new Source<FileChange>(ready);
    const abort = new AbortController();
    const events = (await open(source, abort.signal))[Symbol.asyncIterator]();
    expect((await events.next()).value).toEqual(ready);
    const next = events.next();
    abort.abort();
    expect(await next).toEqual({ done: true, value: undefined });
    expect(source.left).toBe(1);
  });

  test("that may not wake leaves a sleeping agent asleep, and another one wakes it", async () => {
    const world = new World();
    await world.execute(create("a1"));
    await world.execute(verb("sleep", "a1"));
    const of = (wakes: boolean) => world.run(world.engine.watch({ ...target, wakes }, never));
    await expect(of(false)).rejects.toMatchObject({
      code: "agent_state",
      hint: expect.stringContaining("perdure wake a1") as string,
    });
    expect((await world.agent("a1")).state).toBe("asleep");
    // The simulation's guest has no files.
    await expect(of(true)).rejects.toMatchObject({ code: "not_supported" });
    expect((await world.agent("a1")).state).toBe("awake");
    await expect(of(false)).rejects.toMatchObject({ code: "not_supported" });
    await world.execute(verb("stop", "a1"));
    await expect(of(false)).rejects.toMatchObject({
      code: "agent_state",
      hint: expect.stringContaining("perdure start a1") as string,
    });
  });

  test("that may not wake is served by an agent whose link has to be made anew", async () => {
    const world = new World();
    await world.execute(create("a1"));
    await world.restart();
    await expect(
      world.run(world.engine.watch({ ...target, wakes: false }, never)),
    ).rejects.toMatchObject({ code: "not_supported" });
  });
});
