/** Back to a checkpoint that is kept, from every state; what is left behind is kept. Dropping. */
import { beforeEach, describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  drop,
  exec,
  reportOf,
  restore,
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

async function names(): Promise<(string | null)[]> {
  const { checkpoints: rows } = await world.engine.checkpoints({
    tenant: "default",
    agent: "a1",
  });
  return rows.map(({ name }) => name);
}

const counter = async (): Promise<number> => momentOf(await world.guest("a1")).counter;

describe("restore", () => {
  test("of an awake agent: memory and disk of the cut, a new generation, what it was is kept", async () => {
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report).toMatchObject({
      route: "restore",
      generation: 2,
      cut: { memory: true },
      otherCut: { memory: true, keptAs: "before-restore-1" },
    });
    expect(momentOf(await world.guest("a1"))).toMatchObject({ counter: 10, onDisk: 10 });
    expect(await names()).toEqual(["ten", "before-restore-1"]);
    await expectWhole(world);

    const forth = reportOf(await world.execute(restore("a1", "before-restore-1")));
    expect(forth).toMatchObject({ generation: 3, otherCut: { keptAs: "before-restore-2" } });
    expect(await counter()).toBe(15);
    await expectWhole(world);
  });

  test("may be done again and again from one checkpoint, with other entropy each time", async () => {
    const reseeds = new Set<number>();
    for (const generation of [2, 3, 4]) {
      const report = reportOf(await world.execute(restore("a1", "ten")));
      expect(report.generation).toBe(generation);
      reseeds.add(momentOf(await world.guest("a1")).reseeds);
      await count(world, "a1", generation);
    }
    expect(reseeds.size).toBe(1);
    expect(await names()).toHaveLength(4);
    await expectWhole(world);
  });

  test("of a sleeping agent keeps the checkpoint that it slept in; back to that very one, nothing else", async () => {
    await world.execute(verb("sleep", "a1"));
    const { head } = await world.agent("a1");
    expect(reportOf(await world.execute(restore("a1", "ten"))).otherCut).toMatchObject({
      checkpoint: head?.checkpoint,
      keptAs: "before-restore-1",
    });
    expect(await counter()).toBe(10);
    await world.execute(verb("sleep", "a1"));
    const slept = (await world.agent("a1")).head?.checkpoint ?? "";
    expect(reportOf(await world.execute(restore("a1", slept)))).toMatchObject({ otherCut: null });
    expect(await counter()).toBe(10);
    await expectWhole(world);
  });

  test("of a stopped agent keeps its disk, and a checkpoint without memory is booted", async () => {
    await world.execute(verb("stop", "a1"));
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report.otherCut).toMatchObject({ memory: false, keptAs: "before-restore-1" });
    expect(await counter()).toBe(10);
    const booted = reportOf(await world.execute(restore("a1", "before-restore-1")));
    expect(booted).toMatchObject({ route: "restore", cut: { kind: "stop", memory: false } });
    expect(momentOf(await world.guest("a1"))).toMatchObject({ counter: 15, onDisk: 15 });
    await expectWhole(world);
  });

  test("of a crashed agent keeps both its newest disk and its last memory", async () => {
    await world.execute(verb("checkpoint", "a1"));
    await count(world, "a1", 5);
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report.otherCut).toMatchObject({ memory: false, keptAs: "crash-1-disk" });
    expect(new Set(await names())).toEqual(new Set(["ten", "crash-1-disk", "crash-1-memory"]));
    expect(await counter()).toBe(10);
    await world.execute(restore("a1", "crash-1-disk"));
    expect(await counter()).toBe(20);
    await world.execute(restore("a1", "crash-1-memory"));
    expect(await counter()).toBe(15);
    await expectWhole(world);
  });

  test("to a checkpoint without a name keeps that one as well, by id", async () => {
    await world.execute(verb("checkpoint", "a1"));
    const then = (await world.agent("a1")).head?.checkpoint ?? "";
    await count(world, "a1", 5);
    const report = reportOf(await world.execute(restore("a1", then)));
    expect(report).toMatchObject({
      cut: { checkpoint: then },
      otherCut: { keptAs: "before-restore-1" },
    });
    expect(await counter()).toBe(15);
    expect(await names()).toEqual(["ten", "restored-1", "before-restore-1"]);
    await expectWhole(world);
  });

  test("that fails again and again keeps one disk once", async () => {
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    for (let i = 0; i < 3; i++) {
      world.faults.fail("machine.loadDevices");
      await expect(world.execute(restore("a1", "ten"))).rejects.toThrow();
      await world.time.flush();
    }
    expect(await names()).toEqual(["ten", "crash-1-disk"]);
    await world.execute(restore("a1", "crash-1-disk"));
    expect(await counter()).toBe(15);
    await expectWhole(world);
  });

  test("that this host refuses leaves an awake agent awake", async () => {
    const { substrate } = world;
    const facts = substrate.facts.bind(substrate);
    substrate.facts = async (spec) => ({
      ...(await facts(spec)),
      cpuModel: "other",
    });
    await expect(world.execute(restore("a1", "ten"))).rejects.toMatchObject({
      code: "checkpoint_incompatible",
    });
    expect((await world.agent("a1")).state).toBe("awake");
    substrate.facts = facts;
    await expectWhole(world);
  });

  test("to what is not there, or cannot be opened, leaves an awake agent as it is", async () => {
    await expect(world.execute(restore("a1", "eleven"))).rejects.toMatchObject({
      code: "checkpoint_not_found",
      hint: '"perdure checkpoints a1" lists them',
    });
    world.faults.fail("checkpoints.open");
    await expect(world.execute(restore("a1", "ten"))).rejects.toThrow();
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 1 });
    expect(await counter()).toBe(15);
    await expectWhole(world);
  });

  test("that fails leaves the agent asleep where it was, and a plain wake goes on from there", async () => {
    await world.execute(exec("a1", "wait-for", "300000"));
    // Once while it falls asleep, once after.
    world.faults.fail("machine.loadDevices", "machine_failed", { times: 2 });
    await expect(world.execute(restore("a1", "ten"))).rejects.toMatchObject({
      hint: 'Agent "a1" is asleep as it was: "perdure wake a1" goes on from there',
    });
    // Old checkpoints are gone, and it is woken when what waits in it is due.
    await expectWhole(world);
    expect(await world.agent("a1")).toMatchObject({
      state: "asleep",
      waitDueMs: expect.any(Number) as number,
    });
    expect(reportOf(await world.execute(verb("wake", "a1"))).route).toBe("wake");
    expect(await counter()).toBe(15);
  });

  test("of an awake agent finds a machine that was made ready while it fell asleep", async () => {
    const steps: string[] = [];
    world.atStep = (step) => {
      if (step === "sleep.published") steps.push(`published, ${world.host.processes.length} VMs`);
      return null;
    };
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report.checks.map(({ check }) => check)).toContain("hot-child");
    // Its own, the one made ready, and the spare that is kept.
    expect(steps).toEqual(["published, 3 VMs"]);
    expect(await counter()).toBe(10);
    await expectWhole(world);
  });

  test("writes no base of its own on the way, however much has changed", async () => {
    world.ownBaseAboveBytes = 0;
    const steps: string[] = [];
    world.atStep = (step) => {
      steps.push(step);
      return null;
    };
    await world.execute(restore("a1", "ten"));
    expect(steps).toContain("sleep.published");
    expect(steps).not.toContain("sleep.base-written");
    await world.execute(verb("sleep", "a1"));
    expect(steps).toContain("sleep.base-written");
    await expectWhole(world);
  });

  test("where no machine could be made ready goes the way of any other", async () => {
    world.faults.fail("machine.loadDevices");
    const report = reportOf(await world.execute(restore("a1", "ten")));
    expect(report.checks.map(({ check }) => check)).not.toContain("hot-child");
    expect(await counter()).toBe(10);
    await expectWhole(world);
  });

  test("whose sleep fails leaves the agent awake as it was, and no machine that was made ready", async () => {
    world.faults.fail("checkpoints.write", "disk_full");
    await expect(world.execute(restore("a1", "ten"))).rejects.toMatchObject({ code: "disk_full" });
    await world.time.flush();
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 1 });
    expect(await counter()).toBe(15);
    expect(world.host.processes.filter(({ guest }) => guest !== null)).toHaveLength(1);
    await expectWhole(world);
  });

  test("is not cancelled by a call that arrives meanwhile; the call meets the restored agent", async () => {
    const restoring = world.engine.execute(restore("a1", "ten"));
    const calling = world.engine.execute(exec("a1", "count", "1"));
    await world.run(Promise.all([restoring, calling]));
    await world.time.flush();
    expect(await counter()).toBe(11);
    await expectWhole(world);
  });
});

describe("a checkpoint's name", () => {
  test("is taken once, and not one that Perdure gives by itself", async () => {
    await expect(world.execute(checkpoint("a1", "ten"))).rejects.toMatchObject({
      code: "checkpoint_exists",
    });
    for (const name of ["crash-1-disk", "before-restore-1"]) {
      await expect(world.execute(checkpoint("a1", name))).rejects.toMatchObject({
        code: "bad_request",
      });
    }
    await world.execute(checkpoint("a1", "crash-course"));
    await expectWhole(world);
  });
});

describe("drop", () => {
  test("forgets a kept checkpoint and frees its files; the others stay whole", async () => {
    await world.execute(restore("a1", "ten"));
    await world.execute(drop("a1", "before-restore-1"));
    expect(await names()).toEqual(["ten"]);
    await expectWhole(world);
    await expect(world.execute(restore("a1", "before-restore-1"))).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
    expect(await counter()).toBe(10);
  });

  test("of the newest takes its name alone, and of a nameless one is refused", async () => {
    await world.execute(drop("a1", "ten"));
    expect(await names()).toEqual([null]);
    const newest = (await world.agent("a1")).head?.checkpoint ?? "";
    await expect(world.execute(drop("a1", newest))).rejects.toMatchObject({ code: "agent_state" });
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await counter()).toBe(15);
    await expectWhole(world);
  });
});
