/** What an owner says of an agent: an end that holds whatever it does, labels, variables of its programs. */
import { beforeEach, describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { create, exec, fork, hold, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import type { Digest, ImageConfig } from "@perdure/protocol";
import type { OwnerWish } from "./command.ts";
import { withDefaults } from "./exec-default.ts";

const MINUTE = 60_000;
const target = { tenant: "default", agent: "a1" };
const set = (wish: OwnerWish) => ({ kind: "configure", ...target, ...wish }) as const;

let world: World;
beforeEach(() => {
  world = new World();
});

const stateAfter = async (ms: number): Promise<string | null> => {
  await world.time.advance(ms);
  const found = await world.state.agentByName("default", "a1");
  return found?.state ?? null;
};

describe("an end", () => {
  test("puts an agent to sleep when it comes, whatever keeps it awake, and no program inside wakes it", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE } });
    await world.execute(hold("a1", 60 * MINUTE));
    await world.execute(exec("a1", "wait-for", String(20 * MINUTE)));
    expect(await stateAfter(9 * MINUTE)).toBe("awake");
    const why = () => world.run(world.engine.why(target));
    expect(await why()).toMatchObject({ next: { what: "sleep" } });
    expect(await stateAfter(2 * MINUTE)).toBe("asleep");
    expect(await why()).toMatchObject({ reasons: [{ reason: "end" }], next: null });
    expect(await world.agent("a1")).toMatchObject({ asleepBecause: "end", waitDueMs: null });
    expect(await stateAfter(60 * MINUTE)).toBe("asleep");
    expect(await violationsOf(world)).toEqual([]);
  });

  test("removes an agent where that was said, with all that it has", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE, then: "remove" } });
    expect(await stateAfter(9 * MINUTE)).toBe("awake");
    expect(await stateAfter(2 * MINUTE)).toBeNull();
    expect(await violationsOf(world)).toEqual([]);
  });

  test("leaves an agent alone that sleeps then, and begins anew with its next wake", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE, then: "remove" } });
    await world.execute(verb("sleep", "a1"));
    expect(await stateAfter(60 * MINUTE)).toBe("asleep");
    await world.execute(verb("wake", "a1"));
    expect(await stateAfter(9 * MINUTE)).toBe("awake");
    expect(await stateAfter(2 * MINUTE)).toBeNull();
  });

  test("is set anew, is not brought forward where it may only be extended, and is taken away", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE, then: "remove" } });
    const first = (await world.agent("a1")).end;
    await world.execute(set({ end: { afterMs: MINUTE, extend: true } }));
    expect((await world.agent("a1")).end).toEqual(first);
    await world.execute(set({ end: { afterMs: 20 * MINUTE, extend: true } }));
    expect((await world.agent("a1")).end).toMatchObject({ then: "remove", afterMs: 20 * MINUTE });
    expect(await stateAfter(15 * MINUTE)).toBe("awake");
    await world.execute(set({ end: { afterMs: MINUTE, then: "sleep" } }));
    expect(await stateAfter(2 * MINUTE)).toBe("asleep");
    await world.execute(set({ end: null }));
    await world.execute(verb("wake", "a1"));
    expect(await stateAfter(24 * 60 * MINUTE)).toBe("awake");
  });

  test("is no less an end for a call that comes just then: the call wakes the agent again", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE } });
    const calls: Promise<unknown>[] = [];
    world.duringStep = (step) => {
      if (step === "sleep.frozen") calls.push(world.engine.execute(exec("a1", "echo", "hi")));
      return Promise.resolve();
    };
    expect(await stateAfter(11 * MINUTE)).toBe("awake");
    await Promise.all(calls);
    const { end, generation } = await world.agent("a1");
    expect(generation).toBe(2);
    expect(end?.atMs).toBeGreaterThan(world.time.nowMs);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("that is set once is as long as before when it begins anew", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE } });
    await world.execute(set({ end: { afterMs: MINUTE, once: true } }));
    expect(await stateAfter(2 * MINUTE)).toBe("asleep");
    await world.execute(verb("wake", "a1"));
    expect(await stateAfter(9 * MINUTE)).toBe("awake");
    expect(await stateAfter(2 * MINUTE)).toBe("asleep");
  });

  test("is kept by a daemon that comes after, also where it came while none ran", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE } });
    await world.restart();
    expect(await stateAfter(9 * MINUTE)).toBe("awake");
    world.life.end();
    world.time.nowMs += 5 * MINUTE;
    await world.restart();
    expect(await stateAfter(MINUTE)).toBe("asleep");
    expect(await violationsOf(world)).toEqual([]);
  });

  test("of a fork begins when the fork is let out", async () => {
    await world.execute({ ...create("a1"), end: { afterMs: 10 * MINUTE, then: "remove" } });
    await world.time.advance(8 * MINUTE);
    await world.execute(fork("a1", "a2"));
    expect(await stateAfter(5 * MINUTE)).toBeNull();
    expect((await world.agent("a2")).state).toBe("awake");
    await world.time.advance(6 * MINUTE);
    expect(await world.state.agentByName("default", "a2")).toBeNull();
  });
});

test("an agent's variables are those of every program that a call starts, under the call's own", () => {
  const agent = { name: "a1", image: { id: "a".repeat(64) as Digest, name: "debian" } };
  const config = { ...image, env: { ONE: "image", TWO: "image", THREE: "image" } };
  const own = { ...agent, env: { TWO: "agent", THREE: "agent" } };
  const wish = { argv: ["env"], env: { THREE: "call" }, stdin: false };
  const env = { ONE: "image", TWO: "agent", THREE: "call" };
  expect(withDefaults(own, wish, config)).toMatchObject({ env });
  expect(withDefaults(agent, wish, null)).toMatchObject({ env: { THREE: "call" } });
});

const image: ImageConfig = {
  ...{ user: "user", cwd: null, env: {}, entrypoint: [], cmd: [], start: false },
  ...{ stopSignal: null, labels: {}, exposedPorts: [], volumes: [] },
};

test("a fork has its origin's labels and variables unless others are named; a list is narrowed by them", async () => {
  await world.execute({ ...create("a1"), labels: { team: "red", n: "1" }, env: { A: "1" } });
  await world.execute(fork("a1", "a2"));
  await world.execute({ ...fork("a1", "a3"), owner: { labels: { team: "blue" } } });
  const named = async (label: Record<string, string>) => {
    const { agents } = await world.run(world.engine.list({ tenant: "default", label, limit: 10 }));
    return agents.map(({ name }) => name);
  };
  expect(await named({ team: "red" })).toEqual(["a1", "a2"]);
  expect(await named({ team: "red", n: "2" })).toEqual([]);
  expect(await named({ team: "blue" })).toEqual(["a3"]);
  expect(await world.run(world.engine.environment({ tenant: "default", agent: "a3" }))).toEqual({
    A: "1",
  });
});
