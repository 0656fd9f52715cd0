/** Another agent goes on from a checkpoint: from every state, by itself, and with nothing in common. */
import { PerdureError, type LetOut } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  fork,
  hot,
  reportOf,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import type { Guest } from "../../../../test/simulation/guest.ts";
import { World } from "../../../../test/simulation/world.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await count(world, "a1", 10);
  await world.execute(checkpoint("a1", "ten"));
  await count(world, "a1", 5);
});

const forkReport = ([made]: readonly LetOut[]) => {
  if (made === undefined) throw new Error("There is no fork");
  return reportOf(made);
};

const counter = async (name: string): Promise<number> => momentOf(await world.guest(name)).counter;

describe("fork", () => {
  test("of an awake agent: the new one begins where the other is, and both go on by themselves", async () => {
    const report = forkReport(await world.execute(fork("a1", "a2")));
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
    await expectWhole(world);
  });

  test("of a named checkpoint begins there, as often as wanted", async () => {
    for (const name of ["a2", "a3"]) {
      await world.execute(fork("a1", name, "ten"));
      expect(await counter(name)).toBe(10);
    }
    const ids = new Set((await world.state.allAgents()).map(({ id }) => id));
    expect(ids.size).toBe(3);
    await expectWhole(world);
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
      await expectWhole(world);
      await world.execute(verb("remove", "a2"));
      await world.execute(create("a1"));
      await count(world, "a1", 15);
    }
  });

  test("of a stopped agent, and of a kept disk, is booted", async () => {
    await world.execute(verb("stop", "a1"));
    const report = forkReport(await world.execute(fork("a1", "a2")));
    expect(report).toMatchObject({ route: "fork", cut: { kind: "stop", memory: false } });
    expect(momentOf(await world.guest("a2"))).toMatchObject({ counter: 15, onDisk: 15 });
    expect((await world.agent("a1")).state).toBe("stopped");
    await expectWhole(world);
  });

  test("of a crashed agent needs the name of a checkpoint", async () => {
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    await expect(world.execute(fork("a1", "a2"))).rejects.toMatchObject({ code: "agent_state" });
    await world.execute(fork("a1", "a2", "ten"));
    expect(await counter("a2")).toBe(10);
    await expectWhole(world);
  });

  test("under a name that is taken, or that fails, leaves the origin as it was and nothing else", async () => {
    await expect(world.execute(fork("a1", "a1"))).rejects.toMatchObject({ code: "agent_exists" });
    const { checkpoints } = await world.engine.checkpoints({ tenant: "default", agent: "a1" });
    expect(checkpoints).toHaveLength(1);
    world.faults.fail("machine.loadDevices");
    await expect(world.execute(fork("a1", "a2", "ten"))).rejects.toThrow();
    await world.time.flush();
    expect((await world.state.allAgents()).map(({ name }) => name)).toEqual(["a1"]);
    expect(await counter("a1")).toBe(15);
    await expectWhole(world);
  });

  test("crashes before its first checkpoint: its own disk is what there is", async () => {
    await world.execute(fork("a1", "a2"));
    await count(world, "a2", 3);
    (await world.process("a2")).happen("exited");
    await world.time.flush();
    const report = reportOf(await world.execute(verb("wake", "a2")));
    expect(report).toMatchObject({ route: "recover", cut: { memory: false } });
    expect(await counter("a2")).toBe(18);
    await expectWhole(world);
  });
});

describe("several forks at once", () => {
  const several = (names: readonly string[], from?: string) => ({
    ...fork("a1", "unused", from),
    names,
  });

  test("are all of one cut, and each goes on by itself", async () => {
    const made = await world.execute(several(["b1", "b2", "b3"]));
    expect(made.map(({ agent }) => agent.name)).toEqual(["b1", "b2", "b3"]);
    const cuts = new Set(made.map((one) => reportOf(one).cut.checkpoint));
    expect(cuts.size).toBe(1);
    for (const name of ["b1", "b2", "b3"]) expect(await counter(name)).toBe(15);
    expect(await count(world, "b2", 1)).toBe(16);
    expect(await counter("b3")).toBe(15);
    await expectWhole(world);
  });

  test("share a base where much has changed, which outlives the origin and each of them", async () => {
    world.ownBaseAboveBytes = 0;
    await world.execute(several(["b1", "b2"], "ten"));
    const bases = await Promise.all(
      ["b1", "b2"].map(async (name) => (await world.agent(name)).lease?.base),
    );
    expect(bases[0]).toMatchObject({ kind: "own" });
    expect(bases[1]).toEqual(bases[0]);
    await world.execute(verb("remove", "a1"));
    await world.execute(verb("sleep", "b1"));
    await world.execute(verb("remove", "b1"));
    await world.execute(verb("sleep", "b2"));
    expect(await count(world, "b2", 1)).toBe(11);
    await expectWhole(world);
  });

  test("are made whole or not at all", async () => {
    const error = new PerdureError("machine_start_failed", "injected");
    world.faults.arm("substrate.takeSpare", { kind: "fail", error }, { skip: 1 });
    await expect(world.execute(several(["b1", "b2", "b3"]))).rejects.toMatchObject({
      code: "machine_start_failed",
    });
    const names = (await world.state.allAgents()).map(({ name }) => name);
    expect(names).toEqual(["a1"]);
    await world.execute(create("b2"));
    await expect(world.execute(several(["b1", "b2"]))).rejects.toMatchObject({
      code: "agent_exists",
    });
    await expectWhole(world);
  });
});

describe("hot children", () => {
  test("a fork takes one, begins where the checkpoint is, and has only the gate before it", async () => {
    const ready = await world.execute(hot("a1", "ten", "fork", 2));
    expect(ready).toMatchObject({ use: "fork", ready: 2 });
    await expectWhole(world);
    const report = forkReport(await world.execute(fork("a1", "b1", "ten")));
    expect(report.checks).toContainEqual(
      expect.objectContaining({ check: "hot-child", outcome: "passed" }),
    );
    expect(report.checks).toContainEqual(
      expect.objectContaining({ check: "identity", outcome: "passed" }),
    );
    expect(await counter("b1")).toBe(10);
    expect(await count(world, "b1", 1)).toBe(11);
    expect(world.hotChildren.all).toHaveLength(1);
    await world.execute(verb("sleep", "b1"));
    expect(await count(world, "b1", 1)).toBe(12);
    await expectWhole(world);
  });

  test("a restore takes one of its own", async () => {
    await world.execute(hot("a1", "ten", "restore"));
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report).toMatchObject({
      route: "restore",
      generation: 2,
      otherCut: { keptAs: "before-restore-1" },
    });
    expect(world.hotChildren.all).toHaveLength(0);
    expect(await count(world, "a1", 1)).toBe(11);
    await world.execute(verb("sleep", "a1"));
    await world.execute(restore("a1", "before-restore-1"));
    expect(await count(world, "a1", 1)).toBe(16);
    await expectWhole(world);
  });

  test("nothing of the workload runs in one, and each that is let out is another computer", async () => {
    await world.execute(hot("a1", "ten", "fork", 2));
    for (const { machine } of world.hotChildren.all) {
      const guest = world.host.process(machine.record.id)?.guest as Guest;
      expect(guest.running).toBe(false);
      expect(guest.memory.frozen).toBe(true);
    }
    await world.execute(fork("a1", "b1", "ten"));
    await world.execute(fork("a1", "b2", "ten"));
    const [one, two] = [await world.guest("b1"), await world.guest("b2")];
    expect(one.memory.machineId).not.toBe(two.memory.machineId);
    expect(one.memory.reseeds).toBeGreaterThan(0);
    await expectWhole(world);
  });

  test("go with their checkpoint, with their agent, by a count of 0, and when their time is over", async () => {
    await world.execute(hot("a1", "ten", "fork", 2));
    await world.execute(hot("a1", "ten", "fork", 0));
    expect(world.hotChildren.all).toEqual([]);
    await world.execute(hot("a1", "ten", "restore"));
    await world.execute(checkpoint("a1", "fifteen"));
    await world.execute({ kind: "drop", tenant: "default", agent: "a1", checkpoint: "ten" });
    expect(world.hotChildren.all).toEqual([]);
    await world.execute(hot("a1", "fifteen", "fork", 2));
    await world.time.advance(1_000_000);
    expect(world.hotChildren.all).toEqual([]);
    await world.execute(hot("a1", "fifteen"));
    await world.execute(verb("remove", "a1"));
    expect(world.hotChildren.all).toEqual([]);
    await expectWhole(world);
  });

  test("are bounded, and one that dies is not given out", async () => {
    await expect(world.execute(hot("a1", "ten", "fork", 5))).rejects.toMatchObject({
      code: "too_many",
    });
    await world.execute(hot("a1", "ten"));
    const [child] = world.hotChildren.all;
    if (child === undefined) throw new Error("There is no hot child");
    world.host.process(child.machine.record.id)?.happen("exited");
    await world.time.flush();
    expect(world.hotChildren.all).toEqual([]);
    await world.execute(fork("a1", "b1", "ten"));
    expect(await counter("b1")).toBe(10);
    await expectWhole(world);
  });

  test("one whose VM ends while it is made is told as that, and is gone", async () => {
    const own = (await world.agent("a1")).lease?.machine.id;
    const work = (): void => {
      for (const process of world.host.processes) {
        if (process.record.id !== own) process.happen("exited", "killed by SIGKILL");
      }
      throw new PerdureError("guest_unreachable", "Nobody is there");
    };
    world.faults.arm("links.connect", { kind: "do", work });
    await expect(world.execute(hot("a1", "ten"))).rejects.toMatchObject({
      code: "machine_failed",
      message: expect.stringContaining("killed by SIGKILL") as string,
    });
    expect(world.hotChildren.all).toEqual([]);
    await expectWhole(world);
  });

  test("a daemon that ends leaves none behind", async () => {
    await world.execute(hot("a1", "ten", "fork", 2));
    await world.execute(hot("a1", "ten", "restore"));
    await world.restart();
    expect(world.hotChildren.all).toEqual([]);
    await expectWhole(world);
  });
});
