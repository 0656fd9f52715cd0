/** An agent goes through a file: from every state, as another agent, and whole or not at all. */
import { beforeEach, describe, expect, test } from "vitest";
import type { Imported } from "./transfer-command.ts";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  exported,
  fork,
  inPieces,
  recover,
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

function imported(name: string, bytes: Uint8Array): Promise<Imported> {
  const request = { tenant: "default", name, passphrase: null };
  return world.engine.import(request, inPieces(bytes));
}

const counter = async (name: string): Promise<number> => momentOf(await world.guest(name)).counter;

describe("export and import", () => {
  test("of a sleeping agent make another one that goes on where it was, under an identity of its own", async () => {
    const before = { ...(await world.guest("a1")).memory };
    await world.execute(verb("sleep", "a1"));
    const answer = await world.run(imported("a2", await exported(world, "a1")));
    const { id } = await world.agent("a1");
    expect(answer).toMatchObject({
      agent: { name: "a2", state: "asleep", generation: 0 },
      checkpoints: [{ kind: "import", memory: true, generation: 0 }],
      from: { agent: id, name: "a1" },
    });
    expect(answer.agent.id).not.toBe(id);
    const report = reportOf(await world.execute(verb("wake", "a2")));
    expect(report).toMatchObject({ route: "import", generation: 1, cut: { kind: "import" } });
    expect(report.checks).toContainEqual(
      expect.objectContaining({ check: "identity", outcome: "passed" }),
    );
    const { hostname, machineId, bootId, counter: reached } = (await world.guest("a2")).memory;
    expect(reached).toBe(15);
    expect(hostname).toBe("a2");
    expect(machineId).not.toBe(before.machineId);
    expect(bootId).not.toBe(before.bootId);
    expect(await count(world, "a2", 1)).toBe(16);
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1", 2)).toBe(17);
    // From its second wake on it is an agent like any other.
    await world.execute(verb("sleep", "a2"));
    const second = reportOf(await world.execute(verb("wake", "a2")));
    expect(second).toMatchObject({ route: "wake", generation: 2 });
    expect((await world.guest("a2")).memory.machineId).toBe(machineId);
    await expectWhole(world);
  });

  test("outlive the origin, whatever base its memory stood on", async () => {
    for (const ownBaseAboveBytes of [Infinity, 0]) {
      world.ownBaseAboveBytes = ownBaseAboveBytes;
      await world.execute(verb("sleep", "a1"));
      const file = await exported(world, "a1");
      await world.execute(verb("remove", "a1"));
      await world.run(imported("a2", file));
      await world.restart();
      await world.execute(verb("wake", "a2"));
      expect(await count(world, "a2", 1)).toBe(16);
      await expectWhole(world);
      await world.execute(verb("remove", "a2"));
      await world.execute(create("a1"));
      await count(world, "a1", 15);
    }
  });

  test("of a stopped agent: it is stopped, and its first start is the route import", async () => {
    await world.execute(verb("stop", "a1"));
    const { agent } = await world.run(imported("a2", await exported(world, "a1")));
    expect(agent.state).toBe("stopped");
    const report = reportOf(await world.execute(verb("start", "a2")));
    expect(report).toMatchObject({ route: "import", cut: { kind: "import", memory: false } });
    expect((await world.guest("a2")).memory.hostname).toBe("a2");
    expect(momentOf(await world.guest("a2"))).toMatchObject({ counter: 15, onDisk: 15 });
    await expectWhole(world);
  });

  test("of an awake agent need the name of a checkpoint, and say so", async () => {
    await expect(exported(world, "a1")).rejects.toMatchObject({
      code: "agent_state",
      hint: expect.stringContaining("--checkpoint") as string,
    });
    await world.run(imported("a2", await exported(world, "a1", { checkpoint: "ten" })));
    await world.execute(verb("wake", "a2"));
    expect(await counter("a2")).toBe(10);
    expect((await world.agent("a1")).state).toBe("awake");
    await expectWhole(world);
  });

  test("of a crashed agent need the name of a checkpoint", async () => {
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    await expect(exported(world, "a1")).rejects.toMatchObject({ code: "agent_state" });
    await world.run(imported("a2", await exported(world, "a1", { checkpoint: "ten" })));
    await world.execute(verb("wake", "a2"));
    expect(await counter("a2")).toBe(10);
    await expectWhole(world);
  });

  test("with --all bring every named checkpoint; going back to one gives an identity again", async () => {
    await world.execute(verb("sleep", "a1"));
    const { checkpoints } = await world.run(
      imported("a2", await exported(world, "a1", { all: true })),
    );
    expect(checkpoints.map(({ name }) => name)).toEqual(["ten", null]);
    await world.execute(verb("wake", "a2"));
    const { machineId } = (await world.guest("a2")).memory;
    const report = reportOf(await world.execute(restore("a2", "ten")));
    expect(report).toMatchObject({ route: "restore", cut: { kind: "import" } });
    expect(await counter("a2")).toBe(10);
    const { memory } = await world.guest("a2");
    expect(memory.hostname).toBe("a2");
    expect(memory.machineId).not.toBe(machineId);
    await expectWhole(world);
  });

  test("first let out from its disk, or from another checkpoint, it has an identity of its own all the same", async () => {
    await world.execute(verb("sleep", "a1"));
    const file = await exported(world, "a1", { all: true });
    await world.run(imported("a2", file));
    const fromDisk = reportOf(await world.execute(recover("a2", "disk")));
    expect(fromDisk).toMatchObject({ route: "import", cut: { memory: false } });
    expect((await world.guest("a2")).memory.hostname).toBe("a2");
    expect(await counter("a2")).toBe(15);
    await world.run(imported("a3", file));
    const restored = reportOf(await world.execute(restore("a3", "ten")));
    expect(restored).toMatchObject({ route: "import", cut: { kind: "import", memory: true } });
    expect((await world.guest("a3")).memory.hostname).toBe("a3");
    expect(await counter("a3")).toBe(10);
    await expectWhole(world);
  });

  test("crashed before its first sleep it is recovered from the file's cut, with an identity again", async () => {
    await world.execute(verb("sleep", "a1"));
    await world.run(imported("a2", await exported(world, "a1")));
    await world.execute(verb("wake", "a2"));
    await count(world, "a2", 1);
    (await world.process("a2")).happen("exited");
    await world.time.flush();
    const report = reportOf(await world.execute(verb("wake", "a2")));
    expect(report).toMatchObject({ route: "recover", cut: { kind: "import", memory: true } });
    expect((await world.guest("a2")).memory.hostname).toBe("a2");
    expect(await counter("a2")).toBe(15);
    await expectWhole(world);
  });

  test("a first wake that fails leaves it to be tried again by the same route", async () => {
    await world.execute(verb("sleep", "a1"));
    await world.run(imported("a2", await exported(world, "a1")));
    world.faults.fail("machine.loadDevices");
    await expect(world.execute(verb("wake", "a2"))).rejects.toThrow();
    expect(await world.agent("a2")).toMatchObject({ state: "asleep", generation: 1 });
    await world.restart();
    expect(reportOf(await world.execute(verb("wake", "a2")))).toMatchObject({
      route: "import",
      generation: 2,
    });
    await expectWhole(world);
  });

  test("can be forked and exported again before it was ever woken", async () => {
    await world.execute(verb("sleep", "a1"));
    await world.run(imported("a2", await exported(world, "a1")));
    await world.execute(fork("a2", "a3"));
    expect((await world.guest("a3")).memory.hostname).toBe("a3");
    await world.run(imported("a4", await exported(world, "a2")));
    await world.execute(verb("wake", "a4"));
    expect(await counter("a4")).toBe(15);
    await expectWhole(world);
  });

  test("under a name that is taken, or from a file that is broken, leave nothing", async () => {
    await world.execute(verb("sleep", "a1"));
    const file = await exported(world, "a1");
    await expect(world.run(imported("a1", file))).rejects.toMatchObject({ code: "agent_exists" });
    const half = file.subarray(0, file.length / 2);
    await expect(world.run(imported("a2", half))).rejects.toMatchObject({ code: "export_invalid" });
    world.faults.fail("checkpoints.receive", "disk_full");
    await expect(world.run(imported("a2", file))).rejects.toMatchObject({ code: "disk_full" });
    await world.time.flush();
    expect((await world.state.allAgents()).map(({ name }) => name)).toEqual(["a1"]);
    await expectWhole(world);
  });

  test("an export is of one moment: what is slept over, dropped or removed meanwhile is in it", async () => {
    await world.execute(verb("sleep", "a1"));
    const request = { tenant: "default", agent: "a1", all: true, withImage: true };
    const file = await world.run(world.engine.export({ ...request, passphrase: null }));
    await world.execute(verb("wake", "a1"));
    await count(world, "a1", 1);
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("remove", "a1"));
    const bytes = Buffer.concat(await world.run(Array.fromAsync(file.bytes)));
    await world.run(imported("a2", bytes));
    await world.execute(verb("wake", "a2"));
    expect(await counter("a2")).toBe(15);
    await expectWhole(world);
  });
});
