/** The verbs on one agent, each from where it is legal to where it leads. */
import { beforeEach, describe, expect, test } from "vitest";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  exec,
  outputOf,
  recover,
  reportOf,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

let world: World;
beforeEach(() => {
  world = new World();
});

describe("create", () => {
  test("an agent is a fork of its template: awake, generation 1, an identity of its own", async () => {
    const one = await world.execute(create("a1"));
    const two = await world.execute(create("a2"));
    expect(one).toMatchObject({ name: "a1", state: "awake", generation: 1, failure: null });
    expect(two.id).not.toBe(one.id);
    const [first, second] = [await world.guest("a1"), await world.guest("a2")];
    expect(first.memory.hostname).toBe("a1");
    expect(first.memory.machineId).not.toBe(second.memory.machineId);
    expect(first.memory.bootId).not.toBe(second.memory.bootId);
    expect(first.memory.reseeds).toBe(1);
    expect(first.memory.frozen).toBe(false);
    expect(world.templates.size).toBe(1);
    await expectWhole(world);
  });

  test("a taken name is refused with the way out, and the other agent stays", async () => {
    await world.execute(create("a1"));
    await expect(world.execute(create("a1"))).rejects.toMatchObject({
      code: "agent_exists",
      hint: expect.stringContaining("remove") as string,
    });
    await expectWhole(world);
  });

  test("a create that fails half-way leaves no agent, and the name is free", async () => {
    await world.execute(create("a0"));
    for (const point of ["machine.loadDevices", "link.sync", "link.setIdentity", "state.commit"]) {
      world.faults.arm(
        point,
        {
          kind: "fail",
          error: Object.assign(new Error(point)) as never,
        },
        { skip: point === "state.commit" ? 1 : 0 },
      );
      await expect(world.execute(create("a1")), point).rejects.toThrow();
      await expectWhole(world);
    }
    expect(await world.execute(create("a1"))).toMatchObject({ state: "awake" });
    await expectWhole(world);
  });
});

describe("sleep and wake", () => {
  test("a wake goes on exactly where the sleep cut: memory, disk, programs", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 41);
    const { process } = await world.execute(exec("a1", "wait"));
    const slept = await world.execute(verb("sleep", "a1"));
    expect(slept.state).toBe("asleep");
    expect(world.host.processes).toHaveLength(1);
    await world.time.advance(3_600_000);

    const woken = await world.execute(verb("wake", "a1"));
    expect(woken.agent).toMatchObject({ state: "awake", generation: 2 });
    expect(reportOf(woken)).toMatchObject({
      route: "wake",
      generation: 2,
      previousGeneration: 1,
      verdict: "continue",
      awayMs: 3_600_000,
      otherCut: null,
      cut: { checkpoint: slept.head, kind: "sleep", memory: true, disk: "clean" },
    });
    const guest = await world.guest("a1");
    expect(guest.memory).toMatchObject({ counter: 41, generation: 2, reseeds: 2, frozen: false });
    expect(guest.program(process).exitCode).toBeNull();
    expect(await count(world, "a1")).toBe(42);
    await expectWhole(world);
  });

  test("C11 five cycles in a row keep every value, in memory and on disk", async () => {
    await world.execute(create("a1"));
    for (let i = 1; i <= 5; i++) {
      await outputOf(world, "a1", "write", `key-${i}`, String(i));
      expect(await count(world, "a1")).toBe(i);
      await world.execute(verb("sleep", "a1"));
      await world.execute(verb("wake", "a1"));
      for (let j = 1; j <= i; j++) {
        expect(await outputOf(world, "a1", "read", `key-${j}`)).toMatchObject({ text: String(j) });
      }
    }
    expect((await world.agent("a1")).generation).toBe(6);
    await expectWhole(world);
  });

  test("only the newest checkpoint is kept, unless it has a name", async () => {
    await world.execute(create("a1"));
    await world.execute(checkpoint("a1", "kept"));
    for (let i = 0; i < 3; i++) {
      await world.execute(verb("sleep", "a1"));
      await world.execute(verb("wake", "a1"));
    }
    const { checkpoints: rows } = await world.engine.checkpoints({
      tenant: "default",
      agent: "a1",
    });
    expect(rows.map(({ kind, name }) => [kind, name])).toEqual([
      ["named", "kept"],
      ["sleep", null],
    ]);
    await expectWhole(world);
  });

  test("sleep does nothing to a sleeping agent, wake does nothing to an awake one", async () => {
    await world.execute(create("a1"));
    const awake = await world.execute(verb("wake", "a1"));
    expect(awake.agent.generation).toBe(1);
    const slept = await world.execute(verb("sleep", "a1"));
    expect(await world.execute(verb("sleep", "a1"))).toEqual(
      await world.engine.show({ tenant: "default", agent: "a1" }),
    );
    expect(slept.head).not.toBeNull();
    await expectWhole(world);
  });

  test("C32 a call to a sleeping agent wakes it and is answered", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 5);
    await world.execute(verb("sleep", "a1"));
    expect(await count(world, "a1")).toBe(6);
    expect((await world.agent("a1")).generation).toBe(2);
    await expectWhole(world);
  });
});

describe("checkpoint", () => {
  test("a named checkpoint is a cut of an agent that goes on", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 3);
    const view = await world.execute(checkpoint("a1", "before"));
    expect(view).toMatchObject({
      name: "before",
      kind: "named",
      memory: true,
      frozen: true,
      disk: "clean",
    });
    expect(world.cuts.of(view.id).counter).toBe(3);
    expect(await count(world, "a1")).toBe(4);
    expect((await world.agent("a1")).generation).toBe(1);
    expect((await world.agent("a1")).head).toEqual({ checkpoint: view.id, continued: true });
    await expectWhole(world);
  });
});

describe("stop and start", () => {
  test("stop keeps the disk, start boots it: a new generation without memory", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 7);
    const stopped = await world.execute(verb("stop", "a1"));
    expect(stopped).toMatchObject({ state: "stopped", generation: 1 });
    await expectWhole(world);
    const started = await world.execute(verb("start", "a1"));
    expect(reportOf(started)).toMatchObject({
      route: "cold-start",
      generation: 2,
      cut: { memory: false, kind: "stop", disk: "clean" },
    });
    expect(await count(world, "a1")).toBe(8);
    await expectWhole(world);
  });

  test("a sleeping agent is woken to be stopped in order", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 2);
    await world.execute(verb("sleep", "a1"));
    expect(await world.execute(verb("stop", "a1"))).toMatchObject({
      state: "stopped",
      generation: 2,
    });
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(3);
    await expectWhole(world);
  });
});

describe("recover", () => {
  test("a sleeping agent is begun again from its disk; its memory is kept under a name", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 9);
    const slept = await world.execute(verb("sleep", "a1"));
    const back = await world.execute(recover("a1", "disk"));
    expect(reportOf(back)).toMatchObject({
      route: "recover",
      cut: { memory: false },
      otherCut: { checkpoint: slept.head, memory: true, keptAs: "crash-1-memory" },
    });
    expect(await count(world, "a1")).toBe(10);
    await expectWhole(world);
  });
});

describe("remove", () => {
  test("C26 nothing is left of a removed agent, and its name can be used again", async () => {
    const first = await world.execute(create("a1"));
    await count(world, "a1", 3);
    await world.execute(verb("sleep", "a1"));
    expect(await world.execute(verb("remove", "a1"))).toMatchObject({ state: "removed" });
    expect(world.folder.agents.size).toBe(0);
    expect(await world.state.allAgents()).toEqual([]);
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "agent_not_found",
    });

    const second = await world.execute(create("a1"));
    expect(second.id).not.toBe(first.id);
    expect(await count(world, "a1")).toBe(1);
    await world.execute(verb("remove", "a1"));
    await expectWhole(world);
  });
});
