/** Disk layers of agents at rest: fewer of them, nothing lost, and nobody kept waiting. */
import { describe, expect, test } from "vitest";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  exported,
  fork,
  growChain,
  hot,
  inPieces,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { LAYERS_WANTED_MAX } from "./compact.ts";
import { engineLimits } from "./limit.ts";

/**
 * An agent at rest, counted to 16, whose disk has more layers than a cut would leave it. One of the lower is
 * large, so that it stays as it is.
 */
async function longChain(rest: "sleep" | "stop" = "sleep"): Promise<World> {
  const world = new World();
  await world.execute(create("a1"));
  (await world.guest("a1")).seat.disk?.write("large", "x".repeat(10_000));
  await count(world, "a1", 10);
  await world.execute(verb("sleep", "a1"));
  await world.execute(verb("wake", "a1"));
  await growChain(world, "a1", 6);
  await world.execute(verb(rest, "a1"));
  expect(await layersOf(world)).toBeGreaterThan(LAYERS_WANTED_MAX);
  return world;
}

const layersOf = async (world: World, name = "a1"): Promise<number> =>
  (await world.agent(name)).disk?.length ?? 0;

/** It goes on where it was, and nothing is wrong or left over. */
async function goesOn(world: World, counted = 16, name = "a1"): Promise<void> {
  await expectWhole(world);
  const { state } = await world.agent(name);
  await world.execute(verb(state === "stopped" ? "start" : "wake", name));
  expect(await count(world, name, 1)).toBe(counted + 1);
  expect((await world.guest(name)).seat.disk?.read("large")).toHaveLength(10_000);
  await expectWhole(world);
}

describe("gc", () => {
  test.each(["sleep", "stop"] as const)("merges what a %s left in many layers", async (rest) => {
    const world = await longChain(rest);
    const before = await layersOf(world);
    const head = (await world.agent("a1")).head?.checkpoint;
    const freed = await world.execute(verb("gc", "a1"));
    const after = await layersOf(world);
    expect(freed).toMatchObject({ layers: { before, after }, notice: null });
    // The template's, the large one, and one of all others.
    expect(after).toBe(3);
    expect(freed.freedBytes).toBeGreaterThan(0);
    const rows = await world.state.checkpoints((await world.agent("a1")).id);
    expect(rows.map(({ id }) => id)).not.toContain(head);
    // A start counts on from the disk, a wake from memory and disk: the oracle compares both.
    await goesOn(world);
  });

  test("does nothing to a disk that is as short as can be", async () => {
    const world = await longChain();
    await world.execute(verb("gc", "a1"));
    const { head } = await world.agent("a1");
    const again = await world.execute(verb("gc", "a1"));
    expect(again).toMatchObject({ freedBytes: 0, notice: null });
    expect(again.layers.after).toBe(again.layers.before);
    expect((await world.agent("a1")).head).toEqual(head);
  });

  test("leaves the layers that a kept checkpoint and a fork stand on", async () => {
    const world = new World();
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    await world.execute(checkpoint("a1", "kept"));
    await world.execute(fork("a1", "a2", "kept"));
    await growChain(world, "a1", 6);
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("gc", "a1"));
    expect(await layersOf(world)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
    expect(await count(world, "a2", 1)).toBe(11);
    await world.execute(restore("a1", "kept"));
    expect(await count(world, "a1", 1)).toBe(11);
    await expectWhole(world);
  });

  test("says why layers stay as they are, and collects all the same", async () => {
    const world = await longChain();
    world.faults.fail("checkpoints.reserve", "disk_full");
    const before = await layersOf(world);
    const freed = await world.execute(verb("gc", "a1"));
    expect(freed.notice).toMatch(/Fault injected at "checkpoints.reserve"/);
    expect(freed.layers).toEqual({ before, after: before });
    await goesOn(world);
  });

  test.each([
    "substrate.bootCold",
    "machine.mergeLayers",
    "machine.pause",
    "checkpoints.createLayer",
    "checkpoints.syncLayer",
    "checkpoints.open",
    "checkpoints.layers-synced",
    "checkpoints.manifest-written",
  ])("that fails at %s leaves everything as it was", async (point) => {
    const world = await longChain();
    const before = await world.agent("a1");
    world.faults.fail(point);
    expect((await world.execute(verb("gc", "a1"))).notice).toMatch(/Fault injected/);
    world.faults.clear();
    expect((await world.agent("a1")).head).toEqual(before.head);
    expect((await world.agent("a1")).disk).toEqual(before.disk);
    await goesOn(world);
  });

  test("leaves a checkpoint alone that hot children hold", async () => {
    const world = await longChain();
    const { head } = await world.agent("a1");
    await world.execute(hot("a1", head?.checkpoint ?? "", "fork"));
    expect((await world.execute(verb("gc", "a1"))).freedBytes).toBe(0);
    expect((await world.agent("a1")).head).toEqual(head);
    expect(world.hotChildren.all).toHaveLength(1);
  });

  test("keeps an agent that came by a file waiting for its own identity", async () => {
    const world = await longChain();
    const file = await exported(world, "a1");
    const target = { tenant: "default", name: "a2", passphrase: null };
    await world.run(world.engine.import(target, inPieces(file)));
    await world.execute(verb("gc", "a2"));
    expect(await layersOf(world, "a2")).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
    const { report } = await world.execute(verb("wake", "a2"));
    expect(report).toMatchObject({ route: "import" });
    expect(await count(world, "a2", 1)).toBe(17);
    await expectWhole(world);
  });
});

describe("gc that is under way", () => {
  test.each([
    "flatten.machine-started",
    "flatten.layers-merged",
    "flatten.page-map-written",
    "flatten.devices-written",
  ] as const)("ends at %s for whoever wants the agent", async (at) => {
    const world = await longChain();
    const before = await layersOf(world);
    let woken: Promise<unknown> | null = null;
    world.duringStep = (step) => {
      if (step === at) woken = world.engine.execute(verb("wake", "a1"));
      return Promise.resolve();
    };
    const freed = await world.execute(verb("gc", "a1"));
    expect(freed).toMatchObject({ layers: { before, after: before } });
    expect(freed.notice).toMatch(/Something else was wanted/);
    await world.run(Promise.resolve(woken));
    expect(await count(world, "a1", 1)).toBe(17);
    await world.time.flush();
    await expectWhole(world);
  });

  test("does not keep a wake waiting for a merge that takes long", async () => {
    const world = await longChain();
    world.faults.hang("machine.mergeLayers");
    const collected = world.engine.execute(verb("gc", "a1"));
    await world.time.flush();
    await world.execute(verb("wake", "a1"));
    expect((await world.run(collected)).notice).toMatch(/Something else was wanted/);
    expect(await count(world, "a1", 1)).toBe(17);
  });

  test("does not keep the daemon from its end", async () => {
    const world = await longChain();
    world.faults.hang("machine.mergeLayers");
    const collected = world.engine.execute(verb("gc", "a1"));
    await world.time.flush();
    await world.close();
    expect((await collected).notice).toMatch(/the daemon stops/);
    await world.restart();
    await goesOn(world);
  });
});

describe("an agent that rests", () => {
  test("is flattened by itself after a while, and not before", async () => {
    const world = await longChain();
    const before = await layersOf(world);
    await world.time.advance(engineLimits.flattenAfterMs - 1_000);
    expect(await layersOf(world)).toBe(before);
    await world.time.advance(2_000);
    expect(await layersOf(world)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
    await goesOn(world);
  });

  test("begins its while anew with each rest", async () => {
    const world = await longChain();
    await world.time.advance(engineLimits.flattenAfterMs - 1_000);
    await world.execute(verb("wake", "a1"));
    await growChain(world, "a1", 6);
    await world.execute(verb("sleep", "a1"));
    const before = await layersOf(world);
    await world.time.advance(engineLimits.flattenAfterMs - 1_000);
    expect(await layersOf(world)).toBe(before);
    await world.time.advance(2_000);
    expect(await layersOf(world)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
    await goesOn(world, 22);
  });

  test("is found by the next daemon", async () => {
    const world = await longChain();
    await world.restart();
    await world.time.flush();
    await world.time.advance(engineLimits.flattenAfterMs + 1_000);
    expect(await layersOf(world)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
  });

  test("is tried again, later each time, where it could not be", async () => {
    const world = await longChain();
    const before = await layersOf(world);
    world.faults.fail("machine.mergeLayers", "machine_failed", { times: 2 });
    const { flattenAfterMs } = engineLimits;
    await world.time.advance(flattenAfterMs * 3 + 1_000);
    // Twice: after the while, and after twice the while.
    expect(world.stepsPassed.filter((step) => step === "flatten.machine-started")).toHaveLength(2);
    expect(await layersOf(world)).toBe(before);
    await world.time.advance(flattenAfterMs * 4);
    expect(await layersOf(world)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
    await goesOn(world);
  });

  test("waits for its turn: one at a time", async () => {
    const world = await longChain();
    await world.execute(create("a2"));
    await growChain(world, "a2", 6);
    await world.execute(verb("sleep", "a2"));
    const resting = world.host.processes.length;
    const machines: number[] = [];
    world.duringStep = (step) => {
      if (step.startsWith("flatten.")) machines.push(world.host.processes.length - resting);
      return Promise.resolve();
    };
    await world.time.advance(engineLimits.flattenAfterMs + 60_000);
    expect(Math.max(...machines)).toBe(1);
    for (const name of ["a1", "a2"])
      expect(await layersOf(world, name)).toBeLessThanOrEqual(LAYERS_WANTED_MAX);
  });
});
