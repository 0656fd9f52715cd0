/**
 * C23 A daemon, a VMM, or both end at every named durable step, and at every single operation between
 * them; the next daemon settles what is left: one machine or one whole checkpoint, nothing orphaned, and
 * an agent that can be used.
 */
import { describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  exported,
  fork,
  growChain,
  inPieces,
  recover,
  resize,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import { shape, World, type CrashTarget } from "../../../../test/simulation/world.ts";
import type { Command } from "./command.ts";
import { steps, type Step } from "./step.ts";

type Deed = Command | "crash" | "leave by a file" | "many layers";
/** What is cut short: a command, or an agent that comes back by its file. */
type Act = Command | "come by a file";

/** An older checkpoint to forget, and work that is not in it. */
const lived: Deed[] = [
  create("a1"),
  verb("sleep", "a1"),
  verb("wake", "a1"),
  verb("checkpoint", "a1"),
];

/** What brings the agent to the verb of a step, and the verb. */
const scenes: Readonly<Record<string, readonly [Deed[], Act]>> = {
  create: [[], create("a1")],
  sleep: [lived, verb("sleep", "a1")],
  checkpoint: [lived, checkpoint("a1", "cut")],
  wake: [[...lived, verb("sleep", "a1")], verb("wake", "a1")],
  stop: [lived, verb("stop", "a1")],
  "cold-start": [[...lived, verb("stop", "a1")], verb("start", "a1")],
  recover: [[...lived, "crash"], recover("a1", "checkpoint")],
  restore: [[...lived.slice(0, 3), checkpoint("a1", "kept")], restore("a1", "kept")],
  fork: [lived, fork("a1", "a2")],
  flatten: [[...lived.slice(0, 3), "many layers", verb("sleep", "a1")], verb("gc", "a1")],
  import: [[...lived, verb("sleep", "a1"), "leave by a file"], "come by a file"],
  grow: [lived, resize("a1", { diskBytes: 2 * shape.diskBytes })],
  remove: [lived, verb("remove", "a1")],
};
const verbOf = (step: Step): string => step.split(".")[0] ?? "";
const targets = ["daemon", "vmm", "both"] as const;

test("every step belongs to a verb of this table", () => {
  expect(steps.filter((step) => scenes[verbOf(step)] === undefined)).toEqual([]);
});

describe.each(targets)("C23 the end of %s", (target) => {
  test.each(steps)(
    "at %s leaves an agent that can be used, and no file of nobody",
    async (step) => {
      const world = await endAt(step, target);
      expect(await violationsOf(world)).toEqual([]);
      await expectUsable(world, verbOf(step));
    },
  );
});

/** A world in which the target ended at the step and a new daemon has settled what was left. */
async function endAt(step: Step, target: CrashTarget): Promise<World> {
  const [world, act] = await sceneOf(verbOf(step));
  if (step === "sleep.base-written") world.ownBaseAboveBytes = 0;
  let reached = false;
  world.atStep = (passed) => {
    if (passed !== step || reached) return null;
    reached = true;
    return target;
  };
  const outcome = await world.orDie(act(world)).catch(String);
  await world.time.flush();
  expect(reached, `the step was reached (${JSON.stringify(outcome)})`).toBe(true);
  // A daemon that lives has settled the agent by itself.
  if (target === "vmm") expect(await violationsOf(world, { leftovers: true })).toEqual([]);
  await world.restart();
  await world.time.flush();
  return world;
}

describe.each(["daemon", "both"] as const)(
  "C23 the end of %s between any two operations",
  (target) => {
    test.each(Object.keys(scenes))("of %s leaves an agent that can be used", async (name) => {
      const wrong: Record<string, unknown> = {};
      for (let operation = 0, reached = true; reached; operation++) {
        const [world, act] = await sceneOf(name);
        const at = await endBefore(world, act, operation, target);
        reached = at !== null;
        if (at === null) break;
        await world.restart();
        await world.time.flush();
        const found = await violationsOf(world, { leftovers: true });
        const error = await expectUsable(world, name).catch((thrown: unknown) => String(thrown));
        if (found.length > 0 || error !== undefined) wrong[`${operation} ${at}`] = error ?? found;
      }
      expect(wrong).toEqual({});
    });
  },
);

/** Ends the target right before the n-th operation of the command; its name, or null past the last. */
async function endBefore(
  world: World,
  act: (world: World) => Promise<unknown>,
  operation: number,
  target: "daemon" | "both",
): Promise<string | null> {
  let seen = 0;
  let at: string | null = null;
  world.faults.onPoint = (name) => {
    if (at !== null || seen++ < operation) return null;
    at = name;
    return {
      kind: "do",
      work: () => {
        world.life.end();
        if (target === "both") for (const each of world.host.processes) each.happen("exited");
      },
    };
  };
  await world.orDie(act(world)).catch(() => null);
  await world.time.flush();
  world.faults.clear();
  return at;
}

async function sceneOf(name: string): Promise<[World, (world: World) => Promise<unknown>]> {
  const world = new World();
  const scene = scenes[name];
  if (scene === undefined) throw new Error(`There is no scene "${name}"`);
  const [before, act] = scene;
  let file: Uint8Array = new Uint8Array();
  for (const deed of before) {
    if (deed === "leave by a file") {
      file = await exported(world, "a1", { all: true });
      await world.execute(verb("remove", "a1"));
    } else if (deed === "many layers") {
      await growChain(world, "a1", 10);
    } else if (deed === "crash") {
      (await world.process("a1")).happen("exited");
      await world.time.flush();
    } else {
      await world.execute(deed);
      if ((await world.agent("a1")).state === "awake") await count(world, "a1", 10);
    }
  }
  if (act !== "come by a file") return [world, ({ engine }) => engine.execute(act)];
  return [
    world,
    async ({ engine }) => {
      await engine.import({ tenant: "default", name: "a1", passphrase: null }, inPieces(file));
      await engine.execute(verb("wake", "a1"));
    },
  ];
}

async function expectUsable(world: World, name: string): Promise<void> {
  const [agent] = await world.state.allAgents();
  if (agent === undefined) {
    expect(["create", "import", "remove"]).toContain(name);
    expect(await world.execute(create("a1"))).toMatchObject({ state: "awake" });
    return;
  }
  if (agent.state === "stopped") await world.execute(verb("start", "a1"));
  else if (agent.state !== "awake") await world.execute(verb("wake", "a1"));
  const { counter, onDisk } = momentOf(await world.guest("a1"));
  expect(onDisk).toBe(counter);
  // The present, or the newest checkpoint, which ten more were counted after.
  if (name !== "create") expect([30, 20]).toContain(counter);
  expect(await count(world, "a1")).toBe(counter + 1);
  await world.time.flush();
  expect(await violationsOf(world, { leftovers: true })).toEqual([]);
}
