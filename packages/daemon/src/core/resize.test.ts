/** Another size: memory and CPUs at the next cold start, a disk that grows; nothing shrinks, and a crash loses none of it. */
import { beforeEach, describe, expect, test } from "vitest";
import type { MachineShape } from "@perdure/protocol";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  fork,
  hot,
  resize,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import { shape, World } from "../../../../test/simulation/world.ts";
import { engineLimits } from "./limit.ts";
import { Guest } from "../../../../test/simulation/guest.ts";

const larger = { memoryBytes: 2 * shape.memoryBytes, cpus: 2 };
const diskBytes = 4 * shape.diskBytes;

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await count(world, "a1", 10);
});

const show = (agent = "a1") => world.engine.show({ tenant: "default", agent });
const machineShape = async (name = "a1"): Promise<MachineShape> =>
  (await world.process(name)).spec.shape;

async function filledBytes(name = "a1"): Promise<number> {
  const { guest } = await world.process(name);
  if (!(guest instanceof Guest)) throw new Error(`${name} has no guest`);
  return guest.memory.fileSystemBytes;
}

describe("memory and CPUs", () => {
  test("wait for the next cold start, through sleeps; why and show say so", async () => {
    const answer = await world.execute(resize("a1", larger));
    expect(answer).toMatchObject({ shape, pending: larger });
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1", 1)).toBe(11);
    expect(await show()).toMatchObject({ shape, pending: larger });
    const { reasons } = await world.engine.why({ tenant: "default", agent: "a1" });
    expect(reasons.map(({ reason }) => reason)).toContain("size-pending");
    await world.execute(verb("stop", "a1"));
    expect(await show()).toMatchObject({ shape, pending: larger });
    await world.execute(verb("start", "a1"));
    expect(await show()).toMatchObject({ shape: { ...shape, ...larger }, pending: null });
    expect(await machineShape()).toMatchObject(larger);
    expect(await count(world, "a1", 1)).toBe(12);
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1", 1)).toBe(13);
    await expectWhole(world);
  });

  test("that were wanted and are what it has are wanted no more", async () => {
    await world.execute(resize("a1", larger));
    const { memoryBytes, cpus } = shape;
    expect(await world.execute(resize("a1", { cpus }))).toMatchObject({
      pending: { memoryBytes: larger.memoryBytes },
    });
    expect(await world.execute(resize("a1", { memoryBytes }))).toMatchObject({ pending: null });
  });

  test("of a start that failed stay pending", async () => {
    await world.execute(resize("a1", larger));
    await world.execute(verb("stop", "a1"));
    world.faults.fail("substrate.bootCold");
    await expect(world.execute(verb("start", "a1"))).rejects.toThrow(/Fault injected/);
    world.faults.clear();
    expect(await show()).toMatchObject({ state: "stopped", shape, pending: larger });
    await world.execute(verb("start", "a1"));
    expect(await machineShape()).toMatchObject(larger);
  });

  test.each(["restore", "hot restore"] as const)(
    "are those of the checkpoint at a %s, and what was wanted stays wanted",
    async (how) => {
      const { id } = await world.execute(checkpoint("a1", "small"));
      await world.execute(resize("a1", larger));
      await world.execute(verb("stop", "a1"));
      await world.execute(verb("start", "a1"));
      if (how === "hot restore") await world.execute(hot("a1", id, "restore"));
      await world.execute(restore("a1", "small"));
      expect(await show()).toMatchObject({ shape, pending: larger });
      expect(await machineShape()).toMatchObject(shape);
      expect(await count(world, "a1", 1)).toBe(11);
      await world.execute(verb("sleep", "a1"));
      await world.execute(verb("wake", "a1"));
      await world.execute(verb("stop", "a1"));
      await world.execute(verb("start", "a1"));
      expect(await show()).toMatchObject({ shape: { ...shape, ...larger }, pending: null });
      await expectWhole(world);
    },
  );

  test.each(["fork", "hot fork"] as const)("of a %s are those of its checkpoint", async (how) => {
    const { id } = await world.execute(checkpoint("a1", "small"));
    await world.execute(resize("a1", larger));
    await world.execute(verb("stop", "a1"));
    await world.execute(verb("start", "a1"));
    if (how === "hot fork") await world.execute(hot("a1", id, "fork"));
    await world.execute(fork("a1", "a2", "small"));
    expect(await show("a2")).toMatchObject({ shape, pending: larger });
    expect(await machineShape("a2")).toMatchObject(shape);
    expect(await count(world, "a2", 1)).toBe(11);
    await expectWhole(world);
  });
});

describe("a disk", () => {
  test("of an awake agent grows at once, and stays so", async () => {
    const answer = await world.execute(resize("a1", { diskBytes }));
    expect(answer).toMatchObject({ shape: { ...shape, diskBytes }, pending: null });
    expect(await filledBytes()).toBe(diskBytes);
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await filledBytes()).toBe(diskBytes);
    expect(await count(world, "a1", 1)).toBe(11);
    // Nothing was left to do at that wake.
    expect(world.stepsPassed.filter((step) => step === "grow.disk-grown")).toHaveLength(1);
    await expectWhole(world);
  });

  test("of a sleeping agent grows at its wake", async () => {
    await world.execute(verb("sleep", "a1"));
    const answer = await world.execute(resize("a1", { diskBytes }));
    expect(answer).toMatchObject({ state: "asleep", shape, pending: { diskBytes } });
    await world.execute(verb("wake", "a1"));
    expect(await filledBytes()).toBe(diskBytes);
    expect(await show()).toMatchObject({ shape: { ...shape, diskBytes }, pending: null });
    expect(await count(world, "a1", 1)).toBe(11);
  });

  test("of a stopped agent is there when it boots", async () => {
    await world.execute(verb("stop", "a1"));
    await world.execute(resize("a1", { diskBytes, ...larger }));
    await world.execute(verb("start", "a1"));
    expect(await machineShape()).toEqual({ ...larger, diskBytes });
    expect(await show()).toMatchObject({ shape: { ...larger, diskBytes }, pending: null });
    expect(await filledBytes()).toBe(diskBytes);
  });

  test.each(["restore", "hot restore", "hot before"] as const)(
    "grows again at a %s to a checkpoint from before",
    async (how) => {
      const { id } = await world.execute(checkpoint("a1", "small"));
      if (how === "hot before") await world.execute(hot("a1", id, "restore"));
      await world.execute(resize("a1", { diskBytes }));
      await count(world, "a1", 5);
      if (how === "hot restore") await world.execute(hot("a1", id, "restore"));
      await world.execute(restore("a1", "small"));
      expect(await filledBytes()).toBe(diskBytes);
      expect(await count(world, "a1", 1)).toBe(11);
      await expectWhole(world);
    },
  );

  test("of a fork of a checkpoint from before grows too", async () => {
    await world.execute(checkpoint("a1", "small"));
    await world.execute(resize("a1", { diskBytes }));
    await world.execute(fork("a1", "a2", "small"));
    expect(await filledBytes("a2")).toBe(diskBytes);
    expect(await show("a2")).toMatchObject({ shape: { ...shape, diskBytes }, pending: null });
  });

  test.each(["machine.growDisk", "link.exec"])(
    "whose growth fails at %s is pending, and grows when asked again or at the next wake",
    async (point) => {
      world.faults.fail(point);
      const answer = await world.execute(resize("a1", { diskBytes }));
      expect(answer).toMatchObject({ shape, pending: { diskBytes } });
      const { reasons } = await world.engine.why({ tenant: "default", agent: "a1" });
      expect(reasons.map(({ reason }) => reason)).toContain("disk-pending");
      await expectWhole(world);
      // Captured as it is: not grown.
      const { id } = await world.execute(checkpoint("a1", "small"));
      world.faults.clear();
      expect(await world.execute(resize("a1", { diskBytes }))).toMatchObject({ pending: null });
      expect(await filledBytes()).toBe(diskBytes);
      await world.execute(restore("a1", id));
      expect(await filledBytes()).toBe(diskBytes);
      await expectWhole(world);
    },
  );

  test("of a guest that does not answer is pending, and keeps no call waiting", async () => {
    world.faults.hang("link.exec");
    expect(await world.execute(resize("a1", { diskBytes }))).toMatchObject({
      pending: { diskBytes },
    });
    world.faults.clear();
    expect(await count(world, "a1", 1)).toBe(11);
    await expectWhole(world);
  });

  test("of a VM that stops for want of room while it grows is pending, and grows once it goes on", async () => {
    world.faults.hang("link.exec", { times: 1 });
    const resizing = world.engine.execute(resize("a1", { diskBytes }));
    await world.time.flush();
    world.host.roomForDisk = false;
    (await world.process("a1")).happen("io-error");
    // No time passes for it.
    expect(await resizing).toMatchObject({ pending: { diskBytes } });
    await world.time.flush();
    expect(await world.agent("a1")).toMatchObject({ state: "awake", paused: "disk full" });
    world.host.roomForDisk = true;
    await world.time.advance(2 * engineLimits.pausedRetryMs);
    expect(await show()).toMatchObject({ pending: null });
    expect(await filledBytes()).toBe(diskBytes);
    await expectWhole(world);
  });

  test("that is larger than when its daemon died is adopted, and grown as far as it was wanted", async () => {
    world.faults.fail("link.exec");
    await world.execute(resize("a1", { diskBytes }));
    world.faults.clear();
    await world.restart();
    await world.time.flush();
    expect(await filledBytes()).toBe(diskBytes);
    expect(await show()).toMatchObject({ state: "awake", generation: 1, pending: null });
    expect(await count(world, "a1", 1)).toBe(11);
    await expectWhole(world);
  });

  test("never shrinks, and the other settings of such a call are not stored either", async () => {
    await world.execute(resize("a1", { diskBytes }));
    const before = await world.agent("a1");
    const smaller = { diskBytes: shape.diskBytes, ...larger };
    const call = { ...resize("a1", smaller), onCrash: "disk" } as const;
    await expect(world.execute(call)).rejects.toMatchObject({
      code: "bad_request",
      message: expect.stringContaining("only grows") as string,
    });
    expect(await world.agent("a1")).toEqual(before);
  });
});
