/** What a machine does on its own: it dies, panics, reboots, powers off, runs out of room. */
import { beforeEach, describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
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
import { engineLimits } from "./limit.ts";

let world: World;
beforeEach(() => {
  world = new World();
});

async function kill(kind: "exited" | "panic" | "reset" | "shutdown" = "exited"): Promise<void> {
  (await world.process("a1")).happen(kind);
  await world.time.flush();
}

describe("C24 a VMM that dies", () => {
  test("leaves the agent failed at once; the next wake takes the last checkpoint and keeps the disk", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    const cut = await world.execute(checkpoint("a1", "c"));
    await count(world, "a1", 5);
    await kill();
    expect(await world.agent("a1")).toMatchObject({
      state: "failed",
      failure: { reason: "crashed" },
    });
    await expect(world.execute(exec("a1", "count", "1"))).rejects.toMatchObject({
      code: "agent_failed",
      hint: expect.stringContaining("wake") as string,
    });
    await world.time.advance(1000);

    const back = await world.execute(verb("wake", "a1"));
    const report = reportOf(back);
    expect(report).toMatchObject({
      route: "recover",
      generation: 2,
      cut: { checkpoint: cut.id, memory: true },
      otherCut: { memory: false, keptAs: "crash-1-disk", disk: "crash-consistent" },
      awayMs: 1000,
    });
    expect(momentOf(await world.guest("a1"))).toMatchObject({ counter: 10, onDisk: 10 });
    const { checkpoints: rows } = await world.engine.checkpoints({
      tenant: "default",
      agent: "a1",
    });
    expect(rows.map(({ name }) => name)).toContain("crash-1-disk");
    await expectWhole(world);
  });

  test("with onCrash disk boots the newest disk; the checkpoint is kept under a name", async () => {
    await world.execute(create("a1", "disk"));
    await count(world, "a1", 10);
    const cut = await world.execute(verb("checkpoint", "a1"));
    await count(world, "a1", 5);
    await kill();
    const report = reportOf(await world.execute(verb("wake", "a1")));
    expect(report).toMatchObject({
      route: "recover",
      cut: { memory: false },
      otherCut: { checkpoint: cut.id, memory: true, keptAs: "crash-1-memory" },
    });
    expect(momentOf(await world.guest("a1"))).toMatchObject({ counter: 15, onDisk: 15 });
    await expectWhole(world);
  });

  test("with onCrash ask waits for its owner's choice, and takes either", async () => {
    for (const from of ["checkpoint", "disk"] as const) {
      world = new World();
      await world.execute(create("a1", "ask"));
      await count(world, "a1", 10);
      await world.execute(verb("checkpoint", "a1"));
      await count(world, "a1", 5);
      await kill();
      expect((await world.agent("a1")).failure?.wayBack).not.toContain("perdure wake");
      await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
        code: "agent_failed",
        hint: expect.stringContaining("--from checkpoint") as string,
      });
      await world.execute(recover("a1", from));
      expect(await count(world, "a1")).toBe(from === "checkpoint" ? 11 : 16);
      await expectWhole(world);
    }
  });

  test.each([
    ["ask", "disk", "before the crash", 16],
    ["ask", "checkpoint", "after it", 11],
    ["disk", "checkpoint", "before the crash", 11],
    ["checkpoint", "disk", "after it", 16],
  ] as const)(
    "with onCrash %s is recovered as its owner says later: %s, %s",
    async (first, later, when, counted) => {
      const set = { kind: "configure", tenant: "default", agent: "a1", onCrash: later } as const;
      await world.execute(create("a1", first));
      await count(world, "a1", 10);
      await world.execute(verb("checkpoint", "a1"));
      await count(world, "a1", 5);
      if (when === "before the crash") await world.execute(set);
      await kill();
      if (when === "after it") await world.execute(set);
      expect((await world.agent("a1")).failure?.wayBack).toContain('"perdure wake a1" recovers it');
      await world.execute(verb("wake", "a1"));
      expect(await count(world, "a1")).toBe(counted);
      await expectWhole(world);
    },
  );

  test("with onCrash set to ask later is asked for", async () => {
    await world.execute(create("a1"));
    await world.execute({ kind: "configure", tenant: "default", agent: "a1", onCrash: "ask" });
    await world.execute(verb("checkpoint", "a1"));
    await kill();
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({ code: "agent_failed" });
    expect((await world.agent("a1")).state).toBe("failed");
  });

  test("that never was checkpointed is recovered from its disk", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    await kill();
    const report = reportOf(await world.execute(verb("wake", "a1")));
    expect(report).toMatchObject({ route: "recover", cut: { memory: false }, otherCut: null });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world);
    await kill();
    await expect(world.execute(recover("a1", "checkpoint"))).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
  });

  test("C27 twice between two checkpoints is recovered both times: generation +2, other entropy", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    await world.execute(verb("checkpoint", "a1"));
    for (const generation of [2, 3]) {
      await count(world, "a1", 1);
      await kill();
      const report = reportOf(await world.execute(verb("wake", "a1")));
      expect(report).toMatchObject({
        generation,
        otherCut: { keptAs: `crash-${generation - 1}-disk` },
      });
      expect((await world.guest("a1")).memory).toMatchObject({
        counter: 10,
        reseeds: 2,
        generation,
      });
      await expectWhole(world);
    }
    expect(await count(world, "a1")).toBe(11);
  });

  test("is not what a broken link is: the next calls connect once, the agent stays awake", async () => {
    await world.execute(create("a1"));
    world.dropLinks();
    let connects = 0;
    world.faults.onPoint = (name) => {
      if (name === "links.connect") connects++;
      return null;
    };
    const calls = [1, 2, 3].map(() => world.engine.execute(exec("a1", "count", "1")));
    await world.run(Promise.all(calls));
    expect(connects).toBe(1);
    expect(await count(world, "a1")).toBe(4);
    expect((await world.agent("a1")).generation).toBe(1);
    await expectWhole(world);
  });

  test("sleeps with its memory also while its link is broken", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 4);
    world.dropLinks();
    await world.time.flush();
    await world.execute(verb("sleep", "a1"));
    const report = reportOf(await world.execute(verb("wake", "a1")));
    expect(report.cut).toMatchObject({ memory: true, disk: "crash-consistent" });
    expect(await count(world, "a1")).toBe(5);
    await expectWhole(world);
  });

  test("during a sleep leaves the agent failed, and the sleep says so", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    world.atStep = (step) => (step === "sleep.paused" ? "vmm" : null);
    await expect(world.execute(verb("sleep", "a1"))).rejects.toThrow();
    world.atStep = null;
    expect((await world.agent("a1")).state).toBe("failed");
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });
});

describe("C18 a guest that ends itself", () => {
  test("by a panic is failed with the console's tail, and recovers", async () => {
    await world.execute(create("a1"));
    await kill("panic");
    expect(await world.agent("a1")).toMatchObject({
      state: "failed",
      failure: { reason: "panic", message: expect.stringContaining("injected panic") as string },
    });
    await world.execute(verb("wake", "a1"));
    await expectWhole(world);
  });

  test("by powering off is stopped, its disk kept, and starts again", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    await kill("shutdown");
    expect((await world.agent("a1")).state).toBe("stopped");
    await expectWhole(world);
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world);
  });

  test("by a reboot is started cold in a new generation; a loop of them is bounded", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 10);
    for (let i = 1; i <= engineLimits.resetsMax; i++) {
      await kill("reset");
      expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 1 + i });
      expect(await count(world, "a1")).toBe(10 + i);
      await expectWhole(world);
    }
    await kill("reset");
    expect(await world.agent("a1")).toMatchObject({
      state: "failed",
      failure: { reason: "reset_loop" },
    });
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(14);
    await expectWhole(world);
  });

  test("by reboots that are far apart goes on for ever", async () => {
    await world.execute(create("a1"));
    for (let i = 0; i < 10; i++) {
      await kill("reset");
      await world.time.advance(engineLimits.resetWindowMs);
    }
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 11 });
    await expectWhole(world);
  });

  test("is not left awake without a machine where its disk cannot be recorded", async () => {
    await world.execute(create("a1"));
    world.faults.fail("checkpoints.write", "disk_full");
    await kill("shutdown");
    await expectWhole(world, { leftovers: true });
  });

  test("by a reboot that cannot be booted is stopped, and can be started", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 3);
    world.faults.fail("substrate.bootCold", "machine_start_failed");
    await kill("reset");
    expect((await world.agent("a1")).state).toBe("stopped");
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(4);
    await expectWhole(world);
  });
});

describe("C34 a host without room while an agent writes", () => {
  async function runOutOfRoom(): Promise<void> {
    await world.execute(create("a1"));
    world.host.roomForDisk = false;
    (await world.process("a1")).happen("io-error");
    await world.time.flush();
  }

  test("pauses it by name, refuses calls, and lets it go on by itself when there is room", async () => {
    await runOutOfRoom();
    expect(await world.agent("a1")).toMatchObject({ state: "awake", paused: "disk full" });
    await expect(world.execute(exec("a1", "count", "1"))).rejects.toMatchObject({
      code: "agent_paused",
    });
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({
      code: "agent_paused",
    });
    await world.time.advance(3 * engineLimits.pausedRetryMs);
    expect((await world.agent("a1")).paused).toBe("disk full");
    world.host.roomForDisk = true;
    await world.time.advance(engineLimits.pausedRetryMs);
    expect((await world.agent("a1")).paused).toBeNull();
    expect(await count(world, "a1")).toBe(1);
  });

  // The CPUs stood still, and the guest's clock with them.
  test("C01 shows the right time to the first call after it", async () => {
    await runOutOfRoom();
    await world.time.advance(10 * engineLimits.pausedRetryMs);
    world.host.roomForDisk = true;
    await world.time.advance(engineLimits.pausedRetryMs);
    await count(world, "a1");
    await expectWhole(world);
  });

  // Each try that fails tells `io-error` again.
  test("is tried again once per period, however long it lasts", async () => {
    await runOutOfRoom();
    let tries = 0;
    world.faults.onPoint = (name) => {
      if (name === "machine.run") tries++;
      return null;
    };
    await world.time.advance(6 * engineLimits.pausedRetryMs);
    expect(tries).toBeLessThanOrEqual(7);
  });

  test("that pauses again while it is asked to answer is not waited for, and is still tried once per period", async () => {
    await runOutOfRoom();
    world.faults.hang("link.setClock");
    world.host.roomForDisk = true;
    await world.time.advance(engineLimits.pausedRetryMs);
    expect((await world.agent("a1")).paused).toBeNull();
    world.host.roomForDisk = false;
    const pausedAtMs = world.time.nowMs;
    (await world.process("a1")).happen("io-error");
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({
      code: "agent_paused",
    });
    expect(world.time.nowMs).toBe(pausedAtMs);
    world.faults.clear();
    expect((await world.agent("a1")).paused).toBe("disk full");
    let tries = 0;
    world.faults.onPoint = (name) => {
      if (name === "machine.run") tries++;
      return null;
    };
    await world.time.advance(6 * engineLimits.pausedRetryMs);
    expect(tries).toBeLessThanOrEqual(7);
    world.faults.onPoint = null;
    world.host.roomForDisk = true;
    await world.time.advance(2 * engineLimits.pausedRetryMs);
    expect(await count(world, "a1")).toBe(1);
    await expectWhole(world);
  });

  test("a sleep that finds no room is refused without a word to the guest, and a checkpoint at once", async () => {
    await runOutOfRoom();
    world.faults.fail("checkpoints.reserve", "disk_full");
    const asked: string[] = [];
    world.faults.onPoint = (name) => {
      if (name.startsWith("link.")) asked.push(name);
      return null;
    };
    await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    await expect(world.execute(verb("checkpoint", "a1"))).rejects.toMatchObject({
      code: "agent_paused",
    });
    expect(asked).toEqual([]);
    world.faults.onPoint = null;
    expect(await world.agent("a1")).toMatchObject({ state: "awake", paused: "disk full" });
    world.host.roomForDisk = true;
    await world.time.advance(2 * engineLimits.pausedRetryMs);
    expect(await count(world, "a1")).toBe(1);
    await expectWhole(world);
  });

  test("a guest that is too busy to answer when it goes on is asked again, until its clock is right", async () => {
    await runOutOfRoom();
    world.faults.hang("link.setClock", { times: 2 });
    world.host.roomForDisk = true;
    await world.time.advance(10 * engineLimits.pausedRetryMs + 3 * engineLimits.clockMs);
    world.faults.clear();
    await expectWhole(world);
    expect(Math.abs((await world.guest("a1")).wallSkewMs)).toBeLessThan(1);
  });

  test.each(["stop", "checkpoint"] as const)(
    "in the middle of a %s says so, and the agent goes on",
    async (kind) => {
      await world.execute(create("a1"));
      world.faults.hang(kind === "stop" ? "link.shutdown" : "link.flush");
      const verbEnd = world.engine.execute(verb(kind, "a1"));
      verbEnd.catch(() => undefined);
      await world.time.flush();
      world.host.roomForDisk = false;
      (await world.process("a1")).happen("io-error");
      await expect(world.run(verbEnd)).rejects.toMatchObject({ code: "agent_paused" });
      await world.time.flush();
      expect(await world.agent("a1")).toMatchObject({ state: "awake", paused: "disk full" });
      world.faults.clear();
      world.host.roomForDisk = true;
      await world.time.advance(2 * engineLimits.pausedRetryMs);
      expect(await count(world, "a1")).toBe(1);
      expect((await world.execute(verb("stop", "a1"))).state).toBe("stopped");
      await expectWhole(world);
    },
  );

  test("does not keep it from being removed", async () => {
    await runOutOfRoom();
    expect(await world.execute(verb("remove", "a1"))).toMatchObject({ state: "removed" });
    await world.time.advance(10 * engineLimits.pausedRetryMs);
    await expectWhole(world);
  });

  test("an adopted machine that waits for room is found so by the next daemon", async () => {
    await runOutOfRoom();
    await world.restart();
    await world.time.flush();
    expect(await world.agent("a1")).toMatchObject({ state: "awake", paused: "disk full" });
    world.host.roomForDisk = true;
    await world.time.advance(2 * engineLimits.pausedRetryMs);
    expect(await outputOf(world, "a1", "echo", "hello")).toMatchObject({ text: "hello" });
  });
});
