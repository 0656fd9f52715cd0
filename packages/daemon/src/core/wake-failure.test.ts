/** Wakes that cannot be: what is refused and why, what can be tried again, and that nothing is lost. */
import { PerdureError, type SubstrateFacts } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import { count, create, exec, recover, reportOf, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { engineLimits } from "./limit.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await count(world, "a1", 10);
});

describe("an attempt that ends before the let-out", () => {
  const points = [
    "checkpoints.open",
    "checkpoints.createLayer",
    "checkpoints.syncLayer",
    "substrate.facts",
    "substrate.takeSpare",
    "links.connect",
    "machine.attachDisk",
    "machine.injectMemory",
    "machine.loadDevices",
    "machine.run",
    "link.sync",
    "link.info",
    "link.setClock",
    "link.addEntropy",
    "link.setGeneration",
  ];

  test.each(points)(
    "that fails at %s can be repeated; a generation it took stays used",
    async (point) => {
      const slept = await world.execute(verb("sleep", "a1"));
      world.faults.fail(point);
      await expect(world.execute(verb("wake", "a1"))).rejects.toBeInstanceOf(PerdureError);
      const between = await world.agent("a1");
      expect(between).toMatchObject({
        state: "asleep",
        lease: null,
        head: { checkpoint: slept.head, continued: false },
      });
      await expectWhole(world);
      const woken = await world.execute(verb("wake", "a1"));
      expect(woken.agent.generation).toBe(between.generation + 1);
      expect((await world.guest("a1")).memory).toMatchObject({ counter: 10, reseeds: 2 });
      await expectWhole(world);
    },
  );

  test.each(["state.commit"])("that cannot be recorded (%s) can be repeated", async (point) => {
    await world.execute(verb("sleep", "a1"));
    for (const skip of [0, 1]) {
      const error = new PerdureError("store_failed", "no");
      world.faults.arm(point, { kind: "fail", error }, { skip });
      await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
        code: "store_failed",
      });
      world.faults.clear();
      await expectWhole(world);
    }
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world);
  });

  test("C07 a guest that never answers ends in a typed error before its deadline, with a way out", async () => {
    await world.execute(verb("sleep", "a1"));
    world.faults.hang("link.sync");
    const startMs = world.time.nowMs;
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "wake_timeout",
      hint: expect.stringContaining("--from disk") as string,
    });
    expect(world.time.nowMs - startMs).toBe(engineLimits.syncMs);
    const { id, state, generation } = await world.agent("a1");
    expect(state).toBe("asleep");
    const tried = JSON.stringify({ agent: id, route: "wake", generation, code: "wake_timeout" });
    expect(world.complaints).toContain(`A wake attempt failed ${tried}`);
    await expectWhole(world);
    world.faults.clear();
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
  });

  test("C32 a call whose wake fails is told, the next one wakes the agent, and nothing of it is lost", async () => {
    await world.execute(verb("sleep", "a1"));
    world.faults.fail("machine.loadDevices");
    await expect(world.execute(exec("a1", "count", "1"))).rejects.toBeInstanceOf(PerdureError);
    expect((await world.agent("a1")).state).toBe("asleep");
    // A slow wake is waited for, by all who called meanwhile, in the order in which they came.
    world.faults.hang("machine.loadDevices");
    const calls = Promise.all([1, 2, 3].map(() => world.engine.execute(exec("a1", "count", "1"))));
    await world.time.flush();
    expect((await world.agent("a1")).state).toBe("waking");
    world.faults.clear();
    expect(new Set((await world.run(calls)).map(({ generation }) => generation)).size).toBe(1);
    expect((await world.guest("a1")).memory.counter).toBe(13);
    await expectWhole(world);
  });

  test("a VMM that dies during the wake ends it at once", async () => {
    await world.execute(verb("sleep", "a1"));
    world.faults.arm("link.sync", {
      kind: "do",
      work: async () => (await world.process("a1")).happen("exited", "killed"),
    });
    await expect(world.execute(verb("wake", "a1"))).rejects.toThrow("killed");
    expect((await world.agent("a1")).state).toBe("asleep");
    await expectWhole(world);
  });
});

describe("after the let-out was recorded", () => {
  // The let-out stands, so the agent is awake: it must then answer, or be failed with a way back.
  async function failAfterLetOut(point: string, skip = 0): Promise<void> {
    await world.execute(verb("sleep", "a1"));
    const error = new PerdureError("guest_timeout", "no");
    world.faults.arm(point, { kind: "fail", error }, { skip });
    await world.execute(verb("wake", "a1")).catch(() => undefined);
    world.faults.clear();
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world);
  }

  test.each(["link.runHooks", "link.thaw"])(
    "a failure of %s does not leave an agent that is awake and deaf",
    (point) => failAfterLetOut(point),
  );

  test("a report that cannot be stored again does no harm", () =>
    failAfterLetOut("state.commit", 2));
});

describe("refusals", () => {
  test("a checkpoint that was continued is not woken plainly a second time (I3)", async () => {
    await world.execute(verb("checkpoint", "a1"));
    const agent = await world.agent("a1");
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    // As no route leads here, the row is put back by hand.
    const failed = await world.agent("a1");
    await world.state.commit([
      {
        kind: "update-agent",
        agent: { ...failed, state: "asleep", revision: failed.revision + 1 },
        expectedRevision: failed.revision,
      },
    ]);
    expect(agent.head?.continued).toBe(true);
    await world.restart();
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "checkpoint_continued",
      hint: expect.stringContaining("recover") as string,
    });
    await expect(world.execute(exec("a1", "count", "1"))).rejects.toMatchObject({
      code: "checkpoint_continued",
    });
  });

  test("a guest whose clock cannot be set right is not let out", async () => {
    await world.execute(verb("sleep", "a1"));
    world.guestSkewMs = engineLimits.skewRefusedMs;
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({ code: "clock_skew" });
    expect((await world.agent("a1")).state).toBe("asleep");
    await expectWhole(world);
    world.guestSkewMs = engineLimits.skewWantedMs + 1;
    expect(reportOf(await world.execute(verb("wake", "a1"))).verdict).toBe("continue-with-notices");
    await expectWhole(world);
  });

  const digest = "9".repeat(64) as SubstrateFacts["kernel"];
  const changes: [string, Partial<SubstrateFacts>][] = [
    ["kind of VMM", { vmm: "other" }],
    ["machine type", { machineType: "fake-1.1" }],
    ["CPU model", { cpuModel: "other" }],
    ["accelerator", { accelerator: "kvm" }],
    ["memory in bytes", { shape: { memoryBytes: 1, cpus: 1, diskBytes: 1024 * 1024 } }],
    ["number of CPUs", { shape: { memoryBytes: 256 * 1024, cpus: 2, diskBytes: 1024 * 1024 } }],
    ["disk size in bytes", { shape: { memoryBytes: 256 * 1024, cpus: 1, diskBytes: 1 } }],
    ["kernel", { kernel: digest }],
    ["initramfs", { initramfs: digest }],
    ["device command line", { deviceDigest: digest }],
    ["protocol", { guestProtocol: 0 }],
    ["older", { vmmVersion: "1.1.9" }],
  ];
  test.each(changes)(
    "C13 another %s is refused with the reason, and a cold start works",
    async (reason, patch) => {
      await world.execute(verb("sleep", "a1"));
      world.host.factsPatch = patch;
      const refusal = await world.execute(verb("wake", "a1")).catch((error: unknown) => error);
      expect(refusal).toMatchObject({
        code: "checkpoint_incompatible",
        message: expect.stringContaining(reason) as string,
        hint: expect.stringContaining("--from disk") as string,
      });
      expect((await world.agent("a1")).state).toBe("asleep");
      await expectWhole(world);
      const back = await world.execute(recover("a1", "disk"));
      expect(reportOf(back).otherCut).toMatchObject({ memory: true });
      expect(await count(world, "a1")).toBe(11);
      await expectWhole(world);
    },
  );

  test("C13 a newer version of the same VMM is taken", async () => {
    await world.execute(verb("sleep", "a1"));
    for (const vmmVersion of ["1.2.4", "1.10.0", "2.0.0"]) {
      world.host.factsPatch = { vmmVersion };
      await world.execute(verb("wake", "a1"));
      await world.execute(verb("sleep", "a1"));
    }
    await expectWhole(world);
  });

  test.each(["manifest", "devices", "packs", "layers"])(
    "C16 a flipped bit in the %s is found before the agent is let out",
    async (part) => {
      await world.execute(verb("sleep", "a1"));
      const agent = await world.agent("a1");
      const folder = world.folder.agents.get(agent.id);
      const stored = [...(folder?.checkpoints.values() ?? [])].at(-1);
      if (stored?.state === undefined || stored.state === null) throw new Error("No checkpoint");
      const [page] = stored.state.pages.values();
      const [layer] = stored.manifest.disk.layers.slice(-1);
      if (page === undefined || layer === undefined) throw new Error("Nothing to damage");
      if (part === "manifest") (stored.manifest as { createdAtMs: number }).createdAtMs++;
      if (part === "devices") stored.state.devices[20] = 0x20;
      if (part === "packs") page.bytes[0] = (page.bytes[0] ?? 0) ^ 1;
      if (part === "layers") {
        world.files.write(`/fake/agents/${agent.id}/layers/${layer.id}`, Buffer.from('{"x":"y"}'));
      }
      await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
        code: "checkpoint_digest_mismatch",
        details: { part },
      });
      expect((await world.agent("a1")).state).toBe("asleep");
      await world.time.flush();
      expect(world.violations).toEqual([]);
      expect(world.host.processes).toEqual(world.substrate.spares);
    },
  );
});

describe("a boot that stays silent", () => {
  beforeEach(async () => {
    await world.execute(verb("stop", "a1"));
  });

  test("is tried once more, under the next generation, and nothing of the first is left", async () => {
    world.faults.hang("link.sync");
    const { report, agent } = await world.execute(verb("start", "a1"));
    expect(agent).toMatchObject({ state: "awake", generation: 3 });
    expect(report).toMatchObject({ route: "cold-start", previousGeneration: 2 });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world);
  });

  test("twice is told, and leaves the agent stopped", async () => {
    world.faults.hang("link.sync", { times: 2 });
    await expect(world.execute(verb("start", "a1"))).rejects.toMatchObject({
      code: "wake_timeout",
    });
    expect(await world.agent("a1")).toMatchObject({ state: "stopped", lease: null });
    await expectWhole(world);
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(11);
  });
});
