import { describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { checkpoint, count, create, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { LAYERS_WANTED_MAX, layersToKeep } from "./compact.ts";

describe("a merge of disk layers", () => {
  test("takes all small ones into the top and leaves the template's layer", () => {
    expect(layersToKeep([1000, 1, 1, 1, 1, 1, 1, 1, 1])).toBe(1);
  });

  test("leaves a layer that is large beside what lies above it", () => {
    expect(layersToKeep([1000, 500, 1, 1, 1, 1])).toBe(2);
  });

  test("leaves at most four below the top, however large they are", () => {
    const sizes = Array.from({ length: 12 }, (_, index) => 4 ** (12 - index));
    expect(layersToKeep(sizes)).toBe(4);
  });

  test("bounds the chain and the copying over a thousand equal cuts", () => {
    let chain = [1];
    let copied = 0;
    let longest = 0;
    for (let cut = 0; cut < 1000; cut++) {
      chain.push(1);
      longest = Math.max(longest, chain.length);
      if (chain.length > LAYERS_WANTED_MAX) {
        const kept = layersToKeep(chain);
        const merged = chain.slice(kept).reduce((sum, bytes) => sum + bytes, 0);
        copied += merged;
        chain = [...chain.slice(0, kept), merged];
      }
    }
    expect(longest).toBeLessThanOrEqual(LAYERS_WANTED_MAX + 1);
    expect(copied).toBeLessThan(1000 * 12);
  });
});

describe("the chain of an agent that never sleeps", () => {
  const cycles: Readonly<Record<string, (world: World) => Promise<unknown>>> = {
    "stop and start": async (world) => {
      await world.execute(verb("stop", "a1"));
      await world.execute(verb("start", "a1"));
    },
    "crash and recover": async (world) => {
      (await world.process("a1")).happen("exited");
      await world.time.flush();
      await world.execute(verb("wake", "a1"));
    },
  };
  test.each(Object.keys(cycles))("stays short over twenty times %s", async (name) => {
    const world = new World();
    await world.execute(create("a1", "disk"));
    for (let i = 1; i <= 20; i++) {
      expect(await count(world, "a1", 1)).toBe(i);
      await cycles[name]?.(world);
      await world.time.flush();
      const { lease } = await world.agent("a1");
      expect(lease?.lowerLayers.length).toBeLessThanOrEqual(LAYERS_WANTED_MAX + 1);
    }
    expect(await count(world, "a1", 1)).toBe(21);
    expect(await violationsOf(world, { leftovers: true })).toEqual([]);
  });
});

test("a workload that never freezes does not make the chain longer with each try", async () => {
  const world = new World();
  await world.execute(create("a1"));
  const { lease } = await world.agent("a1");
  for (let i = 0; i < 10; i++) {
    await count(world, "a1", 1);
    world.faults.fail("link.freeze", "freeze_timeout");
    await expect(world.execute(checkpoint("a1", "cut"))).rejects.toThrow();
  }
  expect((await world.agent("a1")).lease).toEqual(lease);
  expect(await violationsOf(world)).toEqual([]);
  await world.execute(verb("sleep", "a1"));
  expect((await world.agent("a1")).disk).toHaveLength(2);
  await world.execute(verb("wake", "a1"));
  expect(await count(world, "a1", 1)).toBe(11);
});

describe.each(["cut", "daemon"] as const)(
  "a checkpoint that the %s ends after its layer was recorded",
  (end) => {
    test.each([2, 3, 4, 5, 6, 7, 8, 9, 10])(
      "is followed by a sleep that loses nothing of the disk, after %i layers",
      async (cycles) => {
        const world = new World();
        await world.execute(create("a1"));
        for (let i = 0; i < cycles; i++) {
          await count(world, "a1", 1);
          await world.execute(verb("sleep", "a1"));
          await world.execute(verb("wake", "a1"));
        }
        if (end === "cut") {
          world.faults.fail("machine.addLayer");
          await expect(world.execute(checkpoint("a1", "cut"))).rejects.toThrow();
          world.faults.clear();
        } else {
          world.atStep = (step) => (step === "checkpoint.layer-recorded" ? "daemon" : null);
          await world.executeOrDie(checkpoint("a1", "cut"));
          world.atStep = null;
          await world.restart();
        }
        expect(await count(world, "a1", 1)).toBe(cycles + 1);
        await world.execute(verb("sleep", "a1"));
        await world.execute(verb("wake", "a1"));
        await world.time.flush();
        expect(await violationsOf(world)).toEqual([]);
        expect(await count(world, "a1", 1)).toBe(cycles + 2);
      },
    );
  },
);
