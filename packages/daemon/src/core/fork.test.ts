/** Another agent goes on from a checkpoint: from every state, by itself, and with nothing in common. */
import { beforeEach, describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  fork,
  reportOf,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await count(world, "a1", 10);
  await world.execute(checkpoint("a1", "ten"));
  await count(world, "a1", 5);
});

async function expectWhole(): Promise<void> {
  await world.time.flush();
  expect(await violationsOf(world)).toEqual([]);
}

const counter = async (name: string): Promise<number> => momentOf(await world.guest(name)).counter;

describe("fork", () => {
  test("of an awake agent: the new one begins where the other is, and both go on by themselves", async () => {
    const report = reportOf(await world.execute(fork("a1", "a2")));
    expect(report).toMatchObject({
      route: "fork",
      name: "a2",
      generation: 1,
      cut: { memory: true },
      otherCut: null,
    });
    expect(report.checks).toContainEqual({
      check: "identity",
      outcome: "passed",
      detail: "A new identity was set.",
    });
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 1 });
    expect(await count(world, "a2", 1)).toBe(16);
    expect(await count(world, "a1", 2)).toBe(17);
    expect(momentOf(await world.guest("a2"))).toMatchObject({ counter: 16, onDisk: 16 });
    await expectWhole();
  });

  test("of a named checkpoint begins there, as often as wanted", async () => {
    for (const name of ["a2", "a3"]) {
      await world.execute(fork("a1", name, "ten"));
      expect(await counter(name)).toBe(10);
    }
    const ids = new Set((await world.state.allAgents()).map(({ id }) => id));
    expect(ids.size).toBe(3);
    await expectWhole();
  });

  test("outlives its origin: it sleeps, wakes, and is recovered after that is removed", async () => {
    for (const ownBaseAboveBytes of [Infinity, 0]) {
      world.ownBaseAboveBytes = ownBaseAboveBytes;
      await world.execute(verb("sleep", "a1"));
      await world.execute(fork("a1", "a2"));
      await world.execute(verb("remove", "a1"));
      await world.restart();
      await world.time.flush();
      expect(await count(world, "a2", 1)).toBe(16);
      await world.execute(verb("sleep", "a2"));
      await world.execute(verb("wake", "a2"));
      expect(await counter("a2")).toBe(16);
      (await world.process("a2")).happen("exited");
      await world.time.flush();
      await world.execute(verb("wake", "a2"));
      expect(await counter("a2")).toBe(16);
      await expectWhole();
      await world.execute(verb("remove", "a2"));
      await world.execute(create("a1"));
      await count(world, "a1", 15);
    }
  });

  test("of a stopped agent, and of a kept disk, is booted", async () => {
    await world.execute(verb("stop", "a1"));
    const report = reportOf(await world.execute(fork("a1", "a2")));
    expect(report).toMatchObject({ route: "fork", cut: { kind: "stop", memory: false } });
    expect(momentOf(await world.guest("a2"))).toMatchObject({ counter: 15, onDisk: 15 });
    expect((await world.agent("a1")).state).toBe("stopped");
    await expectWhole();
  });

  test("of a crashed agent needs the name of a checkpoint", async () => {
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    await expect(world.execute(fork("a1", "a2"))).rejects.toMatchObject({ code: "agent_state" });
    await world.execute(fork("a1", "a2", "ten"));
    expect(await counter("a2")).toBe(10);
    await expectWhole();
  });

  test("under a name that is taken, or that fails, leaves the origin as it was and nothing else", async () => {
    await expect(world.execute(fork("a1", "a1"))).rejects.toMatchObject({ code: "agent_exists" });
    expect(await world.engine.checkpoints({ tenant: "default", agent: "a1" })).toHaveLength(1);
    world.faults.fail("machine.loadDevices");
    await expect(world.execute(fork("a1", "a2", "ten"))).rejects.toThrow();
    await world.time.flush();
    expect((await world.state.allAgents()).map(({ name }) => name)).toEqual(["a1"]);
    expect(await counter("a1")).toBe(15);
    await expectWhole();
  });

  test("crashes before its first checkpoint: its own disk is what there is", async () => {
    await world.execute(fork("a1", "a2"));
    await count(world, "a2", 3);
    (await world.process("a2")).happen("exited");
    await world.time.flush();
    const report = reportOf(await world.execute(verb("wake", "a2")));
    expect(report).toMatchObject({ route: "recover", cut: { memory: false } });
    expect(await counter("a2")).toBe(18);
    await expectWhole();
  });
});
