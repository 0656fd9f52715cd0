/** Connections to ports: what they wake, what they keep awake, how they end, and who may visit. */
import { beforeEach, describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { create, exec, fork, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import type { AgentConnection } from "./command.ts";

const target = { tenant: "default", agent: "a1" };
const PORT = 8000;

let world: World;
beforeEach(async () => {
  world = new World();
  world.defaults.idleAfterMs = 60_000;
  await world.execute(create("a1"));
  await world.execute(exec("a1", "serve", String(PORT)));
});

const connect = (wakes = true): Promise<AgentConnection> =>
  world.run(world.engine.connect({ ...target, port: PORT, wakes }));
const state = async (): Promise<string> => (await world.agent("a1")).state;

async function echoed(connection: AgentConnection, said: string): Promise<string> {
  await world.run(connection.write(Buffer.from(said)));
  return Buffer.from((await world.run(connection.read())) ?? []).toString();
}

async function codeOf(work: Promise<unknown>): Promise<unknown> {
  return world.run(
    work.then(
      () => "no error",
      (error: unknown) => (error as { code?: unknown }).code,
    ),
  );
}

describe("connections", () => {
  test("wake an agent that sleeps, and say its generation", async () => {
    await world.execute(verb("sleep", "a1"));
    expect(await codeOf(connect(false))).toBe("agent_state");
    const connection = await connect();
    expect(connection.generation).toBe((await world.agent("a1")).generation);
    expect(await echoed(connection, "hello")).toBe("hello");
    expect(await violationsOf(world)).toEqual([]);
  });

  test("keep it awake while something passes, and not while nothing does", async () => {
    const connection = await connect();
    for (let i = 0; i < 10; i++) {
      await world.time.advance(40_000);
      expect(await echoed(connection, "x")).toBe("x");
    }
    expect(await state()).toBe("awake");
    const reading = codeOf(connection.read());
    await world.time.advance(100_000);
    expect(await state()).toBe("asleep");
    expect(await reading).toBe("interrupted");
  });

  test("keep it awake while somebody waits for an answer", async () => {
    const connection = await connect();
    const leave = connection.attend();
    await world.time.advance(600_000);
    expect(await state()).toBe("awake");
    leave();
    await world.time.advance(100_000);
    expect(await state()).toBe("asleep");
  });

  test("end with the reason when the agent sleeps", async () => {
    const connection = await connect();
    const reading = codeOf(connection.read());
    await world.execute(verb("sleep", "a1"));
    expect(await reading).toBe("interrupted");
    expect(await codeOf(connection.write(Buffer.from("x")))).toBe("interrupted");
  });

  test("are refused where exec is, and where nobody listens", async () => {
    expect(await codeOf(world.engine.connect({ ...target, port: 1 }))).toBe("port_refused");
    await world.execute({ kind: "quarantine", ...target, reason: "because" });
    expect(await codeOf(connect())).toBe("agent_quarantined");
    await world.execute({ kind: "release", ...target });
    await world.execute(verb("wake", "a1"));
    await world.execute(verb("stop", "a1"));
    expect(await codeOf(connect())).toBe("agent_state");
    await world.execute(verb("remove", "a1"));
    expect(await codeOf(connect())).toBe("agent_not_found");
  });
});

describe("who may visit a port", () => {
  const set = (part: { public?: boolean; renewToken?: boolean } = {}) =>
    world.execute({ kind: "set-port", ...target, port: PORT, ...part });

  test("is nobody at first, then as its owner says, in whatever state", async () => {
    const first = await set();
    expect(first).toMatchObject({ port: PORT, public: false });
    expect(first.token).toMatch(/^pt_[0-9a-f]{48}$/);
    expect(await set({ public: true })).toEqual({ ...first, public: true });
    expect((await world.run(world.engine.show(target))).publicPorts).toEqual([PORT]);
    await world.execute(verb("sleep", "a1"));
    expect(await set()).toEqual({ ...first, public: true });
    const renewed = await set({ public: false, renewToken: true });
    expect(renewed.token).not.toBe(first.token);
    expect(await state()).toBe("asleep");
    expect((await world.run(world.engine.show(target))).publicPorts).toEqual([]);
  });

  test("is nobody of a fork", async () => {
    await set({ public: true });
    await world.execute(fork("a1", "b1"));
    const forked = await world.run(world.engine.show({ ...target, agent: "b1" }));
    expect(forked.publicPorts).toEqual([]);
  });

  test("is everybody where its owner says so of all, but of those that were made private", async () => {
    const closed = await set({ public: false });
    await world.execute({ kind: "configure", ...target, portsPublic: true });
    const other = { kind: "set-port", ...target, port: PORT + 1 } as const;
    expect(await world.execute(other)).toMatchObject({ public: true });
    expect(await set()).toEqual(closed);
    expect(await world.run(world.engine.show(target))).toMatchObject({
      portsPublic: true,
      publicPorts: [PORT + 1],
    });
    await world.execute(fork("a1", "b1"));
    const forked = await world.run(world.engine.show({ ...target, agent: "b1" }));
    expect(forked.portsPublic).toBe(false);
  });

  test("is said of 256 ports at most", async () => {
    for (let port = 1; port <= 256; port++) {
      await world.execute({ kind: "set-port", ...target, port });
    }
    expect(await codeOf(world.execute({ kind: "set-port", ...target, port: 257 }))).toBe(
      "too_many",
    );
    expect(await codeOf(world.execute({ kind: "set-port", ...target, port: 256 }))).toBe(
      "no error",
    );
  });
});
