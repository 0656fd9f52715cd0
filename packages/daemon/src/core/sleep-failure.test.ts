/** Sleeps and checkpoints that cannot be: the agent stays awake, thawed and answering (I10, C15). */
import { PerdureError } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { checkpoint, count, create, reportOf, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { engineLimits } from "./limit.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await world.execute(verb("sleep", "a1"));
  await world.execute(verb("wake", "a1"));
  await count(world, "a1", 10);
});

async function expectAwakeAndWell(leftovers = false): Promise<void> {
  const { state, failure, generation } = await world.agent("a1");
  expect({ state, failure, generation }).toEqual({ state: "awake", failure: null, generation: 2 });
  expect(await count(world, "a1")).toBe(11);
  await world.time.flush();
  expect(await violationsOf(world, { leftovers })).toEqual([]);
}

async function expectSleepsNow(): Promise<void> {
  world.faults.clear();
  world.folder.freeBytes = Number.MAX_SAFE_INTEGER;
  expect(await world.execute(verb("sleep", "a1"))).toMatchObject({ state: "asleep" });
  await world.execute(verb("wake", "a1"));
  expect(await count(world, "a1")).toBe(12);
  await world.time.flush();
  expect(await violationsOf(world)).toEqual([]);
}

describe("C15 a disk that is full", () => {
  test("when the room is reserved: the error names the space, the agent stays awake", async () => {
    world.folder.freeBytes = engineLimits.captureSlackBytes;
    const error = await world.execute(verb("sleep", "a1")).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "disk_full" });
    const { details, message } = error as PerdureError;
    expect(details["neededBytes"]).toBeGreaterThan(engineLimits.captureSlackBytes);
    expect(message).toContain(String(details["neededBytes"]));
    await expectAwakeAndWell();
    await expectSleepsNow();
  });

  test.each([
    "pack-written",
    "page-map-written",
    "devices-written",
    "layers-synced",
    "manifest-written",
  ])("while the checkpoint is written (%s): nothing is left of it", async (point) => {
    world.faults.fail(`checkpoints.${point}`, "disk_full");
    await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    await expectAwakeAndWell();
    await expectSleepsNow();
  });

  test("during a checkpoint: the agent goes on, and the next one is whole", async () => {
    world.folder.freeBytes = 1;
    await expect(world.execute(checkpoint("a1", "c"))).rejects.toMatchObject({ code: "disk_full" });
    await expectAwakeAndWell();
    world.folder.freeBytes = Number.MAX_SAFE_INTEGER;
    const taken = await world.execute(checkpoint("a1", "c"));
    expect(world.cuts.of(taken.id)).toMatchObject({ counter: 11, onDisk: 11 });
    await expectSleepsNow();
  });

  test("during a stop: the agent is stopped all the same, its disk is what starts again", async () => {
    world.faults.fail("checkpoints.layers-synced", "disk_full");
    expect(await world.execute(verb("stop", "a1"))).toMatchObject({ state: "stopped" });
    await world.time.flush();
    expect(await violationsOf(world)).toEqual([]);
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(11);
  });
});

describe("a step of a sleep that fails", () => {
  const points = [
    "machine.pause",
    "machine.privatePages",
    "machine.saveDevices",
    "checkpoints.reserve",
    "checkpoints.write",
    "machine.readPages",
    "machine.readBatch",
  ];
  test.each(points)("%s: the agent stays awake, and the next sleep is whole", async (point) => {
    world.faults.fail(point);
    await expect(world.execute(verb("sleep", "a1"))).rejects.toBeInstanceOf(PerdureError);
    await expectAwakeAndWell();
    await expectSleepsNow();
  });

  test("publication that is refused by the state store: the agent stays awake", async () => {
    const error = new PerdureError("store_failed", "no");
    world.faults.arm("state.commit", { kind: "fail", error }, { skip: 1 });
    await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({
      code: "store_failed",
    });
    await expectAwakeAndWell(true);
    await expectSleepsNow();
  });

  test("a flush that misses its deadline is marked, and the sleep goes on", async () => {
    world.faults.hang("link.flush", { times: 2 });
    const slept = await world.execute(verb("sleep", "a1"));
    world.faults.clear();
    const { cut, verdict } = reportOf(await world.execute(verb("wake", "a1")));
    expect(cut).toMatchObject({ checkpoint: slept.head, disk: "crash-consistent" });
    expect(verdict).toBe("continue");
    await expectSleepsAfterWake();
  });

  test("a freeze that misses its deadline is marked, and the sleep goes on", async () => {
    world.faults.hang("link.freeze");
    await world.execute(verb("sleep", "a1"));
    world.faults.clear();
    const report = reportOf(await world.execute(verb("wake", "a1")));
    expect(report.verdict).toBe("continue-with-notices");
    expect(
      report.checks.filter(({ outcome }) => outcome === "notice").map(({ check }) => check),
    ).toEqual(["cut", "frozen"]);
    await expectSleepsAfterWake();
  });

  async function expectSleepsAfterWake(): Promise<void> {
    expect(await count(world, "a1")).toBe(11);
    await world.time.flush();
    expect(await violationsOf(world)).toEqual([]);
  }

  test("a named checkpoint is refused where the freeze misses its deadline; the agent goes on", async () => {
    world.faults.hang("link.freeze");
    await expect(world.execute(checkpoint("a1", "c"))).rejects.toMatchObject({
      code: "freeze_timeout",
    });
    world.faults.clear();
    await expectAwakeAndWell(true);
  });

  // The VM runs and only the thaw was not answered: there is nothing to destroy its memory for.
  test("a thaw that is not answered once does not cost the agent its memory", async () => {
    world.faults.fail("checkpoints.write", "disk_full");
    world.faults.fail("link.thaw", "guest_timeout");
    await world.execute(verb("sleep", "a1")).catch(() => undefined);
    await expectAwakeAndWell();
  });

  test("a checkpoint whose VM process does not answer for a while: the agent goes on when it does", async () => {
    world.faults.fail("machine.saveDevices");
    world.faults.fail("machine.run", "machine_failed", { times: 5 });
    await expect(world.execute(checkpoint("a1", "c"))).rejects.toMatchObject({
      code: "machine_failed",
    });
    await world.time.advance(10 * engineLimits.pausedRetryMs);
    await expectAwakeAndWell();
    await expectSleepsNow();
  });

  test("a call right after such a checkpoint is answered as soon as the VM process is", async () => {
    world.faults.fail("machine.saveDevices");
    world.faults.fail("machine.run");
    await expect(world.execute(checkpoint("a1", "c"))).rejects.toMatchObject({
      code: "machine_failed",
    });
    await expectAwakeAndWell();
    await expectSleepsNow();
  });

  test("a thaw that is not answered once leaves no frozen agent after a checkpoint", async () => {
    world.faults.fail("link.thaw", "guest_timeout");
    await world.execute(checkpoint("a1", "c")).catch(() => undefined);
    world.faults.clear();
    await expectAwakeAndWell(true);
  });

  // The CPUs stood still while the checkpoint was written.
  test("C01 a sleep that is given up after a while leaves the clock right", async () => {
    world.duringStep = (step) => {
      if (step === "sleep.pack-written") world.time.nowMs += 5000;
      return Promise.resolve();
    };
    world.faults.fail("checkpoints.manifest-written", "disk_full");
    await world.execute(verb("sleep", "a1")).catch(() => undefined);
    await expectAwakeAndWell(true);
  });
});

describe("a stop that fails", () => {
  test("at link.shutdown leaves the agent awake and answering", async () => {
    world.faults.fail("link.shutdown", "guest_timeout");
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({
      code: "guest_timeout",
    });
    await expectAwakeAndWell();
  });

  test.each(["stop", "sleep"] as const)(
    "by a process that cannot be ended: %s is done, and the next daemon ends it",
    async (kind) => {
      world.faults.fail("machine.kill");
      await world.execute(verb(kind, "a1")).catch(() => undefined);
      await world.restart();
      await world.time.flush();
      expect(await violationsOf(world)).toEqual([]);
      await world.execute(verb(kind === "stop" ? "start" : "wake", "a1"));
      expect(await count(world, "a1")).toBe(11);
    },
  );

  test("by a guest that does not power off leaves the agent awake and answering", async () => {
    world.faults.arm("link.shutdown", {
      kind: "do",
      work: async () => {
        (await world.guest("a1")).seat.happen = () => undefined;
      },
    });
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({
      code: "deadline_exceeded",
    });
    await expectAwakeAndWell();
  });

  test("an agent whose link is down can be stopped", async () => {
    world.dropLinks();
    await world.time.flush();
    expect(await world.execute(verb("stop", "a1"))).toMatchObject({ state: "stopped" });
  });
});

describe("a remove that fails", () => {
  test.each(["machine.kill", "checkpoints.removeAgent", "state.commit"])(
    "at %s is finished by the next daemon, and the name is free at once",
    async (point) => {
      const error = new PerdureError("store_failed", "no");
      world.faults.arm(point, { kind: "fail", error }, { skip: point === "state.commit" ? 1 : 0 });
      await expect(world.execute(verb("remove", "a1"))).rejects.toMatchObject({
        code: "store_failed",
      });
      expect(await world.execute(create("a1"))).toMatchObject({ state: "awake", generation: 1 });
      await world.restart();
      await world.time.flush();
      expect(await violationsOf(world)).toEqual([]);
      expect(await world.state.allAgents()).toHaveLength(1);
    },
  );
});
