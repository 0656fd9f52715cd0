/** Agents that rest by themselves: what keeps them awake, what wakes them, and what they say of it. */
import { PerdureError } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  count,
  create,
  exec,
  fork,
  outputOf,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

const target = { tenant: "default", agent: "a1" };
const configure = (settings: { idleAfterMs?: number | null; wakeAtMs?: number | null }) =>
  ({ kind: "configure", ...target, ...settings }) as const;
const hold = (forMs: number, reason = "") => ({ kind: "hold", ...target, forMs, reason }) as const;

let world: World;
beforeEach(() => {
  world = new World();
  world.defaults.idleAfterMs = 60_000;
});

const stateAfter = async (ms: number): Promise<string> => {
  await world.time.advance(ms);
  return (await world.agent("a1")).state;
};
const why = () => world.run(world.engine.why(target));

describe("idle", () => {
  test("an agent that nothing needs is put to sleep after its idle time, as on demand (C10)", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 7);
    expect(await stateAfter(50_000)).toBe("awake");
    expect(await why()).toMatchObject({
      state: "awake",
      reasons: [{ reason: "quiet" }],
      next: { what: "sleep" },
    });
    expect(await stateAfter(40_000)).toBe("asleep");
    expect(await why()).toMatchObject({
      state: "asleep",
      reasons: [{ reason: "idle" }],
      next: null,
    });
    expect((await outputOf(world, "a1", "read", "counter")).text).toBe("7");
    expect(await count(world, "a1", 1)).toBe(8);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a silent computation is not put to sleep, for however long it takes (C30)", async () => {
    await world.execute(create("a1"));
    const { process } = await world.execute(exec("a1", "spin"));
    expect(await stateAfter(15 * 60_000)).toBe("awake");
    expect((await why()).reasons).toMatchObject([{ reason: "busy" }]);
    const kill = { kind: "signal", ...target, process, signal: 9, tree: true } as const;
    await world.execute(kill);
    (await world.guest("a1")).program(process).exitCode = 137;
    expect(await stateAfter(100_000)).toBe("asleep");
  });

  test("a hold keeps it awake until its end, and cannot for ever (C30)", async () => {
    await world.execute(create("a1"));
    await world.execute(hold(10 * 60_000, "deploying"));
    expect(await stateAfter(9 * 60_000)).toBe("awake");
    expect((await why()).reasons).toMatchObject([{ reason: "hold", detail: "Hold 1: deploying" }]);
    expect(await stateAfter(3 * 60_000)).toBe("asleep");
    expect((await world.run(world.engine.show(target))).holds).toEqual([]);
  });

  test("a hold wakes a sleeping agent, is ended before its time, and they are bounded", async () => {
    await world.execute(create("a1"));
    await world.execute(verb("sleep", "a1"));
    const { id } = await world.execute(hold(3_600_000));
    expect(await stateAfter(120_000)).toBe("awake");
    const ended = { kind: "end-hold", ...target, hold: id } as const;
    await world.execute(ended);
    await expect(world.execute(ended)).rejects.toMatchObject({ code: "hold_not_found" });
    expect(await stateAfter(100_000)).toBe("asleep");
    expect((await world.execute(hold(3_600_000))).id).toBe(id + 1);
    for (let i = 1; i < 16; i++) await world.execute(hold(3_600_000));
    await expect(world.execute(hold(3_600_000))).rejects.toMatchObject({ code: "too_many" });
  });

  test("a hold that never was, or whose time is over, cannot be ended", async () => {
    await world.execute(create("a1"));
    const none = { kind: "end-hold", ...target, hold: 99 } as const;
    await expect(world.execute(none)).rejects.toMatchObject({
      code: "hold_not_found",
      message: 'Agent "a1" has no hold 99',
    });
    const { id } = await world.execute(hold(10_000));
    await world.time.advance(11_000);
    const over = { ...none, hold: id };
    await expect(world.execute(over)).rejects.toMatchObject({ code: "hold_not_found" });
  });

  test("a forked agent inherits no hold", async () => {
    await world.execute(create("a1"));
    await world.execute(hold(3_600_000));
    await world.execute(fork("a1", "a2"));
    expect((await world.agent("a2")).holds).toEqual([]);
    await world.time.advance(120_000);
    expect((await world.agent("a2")).state).toBe("asleep");
    expect((await world.agent("a1")).state).toBe("awake");
  });

  test("a caller who reads keeps it awake, one who has gone does not", async () => {
    await world.execute(create("a1"));
    const { process } = await world.execute(exec("a1", "wait"));
    const reading = new AbortController();
    const output = await world.run(world.engine.output({ ...target, process }, 0, reading.signal));
    const first = output[Symbol.asyncIterator]().next();
    expect(await stateAfter(600_000)).toBe("awake");
    expect((await why()).reasons).toMatchObject([{ reason: "caller" }]);
    reading.abort();
    await world.run(first);
    expect(await stateAfter(100_000)).toBe("asleep");
  });

  test("input that no program reads keeps it awake for as long as whoever sent it is there", async () => {
    world.defaults.idleAfterMs = 2_000;
    await world.execute(create("a1"));
    const { process } = await world.execute(exec("a1", "wait"));
    const sending = new AbortController();
    world.faults.hang("link.writeStdin");
    const bytes = new Uint8Array(10);
    const to = { ...target, process };
    const written = world.engine.writeStdin(to, bytes, false, sending.signal).catch(String);
    expect(await stateAfter(15_000)).toBe("awake");
    expect((await why()).reasons).toMatchObject([{ reason: "caller" }]);
    sending.abort();
    expect(await stateAfter(10_000)).toBe("asleep");
    world.faults.release();
    await world.run(written);
  });

  test("looking at it keeps nothing awake, whoever looks (C31)", async () => {
    await world.execute(create("a1"));
    for (let i = 0; i < 9; i++) {
      await world.time.advance(10_000);
      await world.run(world.engine.show(target));
      await world.run(world.engine.list({ tenant: "default", limit: 10 }));
      await why();
      await world.run(world.engine.checkpoints(target));
    }
    expect((await world.agent("a1")).state).toBe("asleep");
  });

  test("a sleep that was decided on does not run after a call (C21)", async () => {
    await world.execute(create("a1"));
    await world.time.advance(59_000);
    // The decision falls while a call is under way; it waits for the lane, and then it is no longer true.
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    world.duringStep = (step) => (step === "checkpoint.frozen" ? held : Promise.resolve());
    const cut = world.engine.execute(checkpoint("a1", "kept"));
    await new Promise((next) => setImmediate(next));
    const call = world.engine.execute(exec("a1", "count", "1"));
    release();
    await world.run(Promise.all([cut, call]));
    expect(await stateAfter(30_000)).toBe("awake");
    expect(await stateAfter(60_000)).toBe("asleep");
  });

  test("never means never, and a change counts at once", async () => {
    await world.execute(create("a1"));
    await world.execute(configure({ idleAfterMs: null }));
    expect(await stateAfter(3_600_000)).toBe("awake");
    expect(await why()).toMatchObject({ reasons: [{ reason: "idle-off" }], next: null });
    await world.execute(configure({ idleAfterMs: 5_000 }));
    expect(await stateAfter(15_000)).toBe("asleep");
  });

  test("a guest that does not answer is not known to be idle", async () => {
    await world.execute(create("a1"));
    world.dropLinks();
    expect(await stateAfter(600_000)).toBe("awake");
    expect((await why()).reasons).toMatchObject([{ reason: "silent" }]);
    await count(world, "a1", 1);
    expect(await stateAfter(100_000)).toBe("asleep");
  });

  test("a daemon that took it over looks after it as well", async () => {
    await world.execute(create("a1"));
    await world.restart();
    expect(await stateAfter(100_000)).toBe("asleep");
    expect(await violationsOf(world)).toEqual([]);
  });
});

describe("waits inside", () => {
  test("a program that waits is woken when it is due, also by another daemon (C33)", async () => {
    await world.execute(create("a1"));
    await world.execute(exec("a1", "wait-for", "300000"));
    const startedMs = world.time.nowMs;
    expect(await stateAfter(100_000)).toBe("asleep");
    const { waitDueMs } = await world.agent("a1");
    expect(Math.abs((waitDueMs ?? 0) - startedMs - 300_000)).toBeLessThan(1_000);
    await world.restart();
    expect(await stateAfter(startedMs + 298_000 - world.time.nowMs)).toBe("asleep");
    expect(await stateAfter(4_000)).toBe("awake");
    expect((await world.agent("a1")).waitDueMs).toBeNull();
  });

  test("one that is due within moments is waited for awake (C33)", async () => {
    await world.execute(create("a1"));
    await world.execute(exec("a1", "wait-for", "62000"));
    expect(await stateAfter(61_900)).toBe("awake");
  });

  test("on demand it sleeps at once, and is woken all the same", async () => {
    await world.execute(create("a1"));
    await world.execute(exec("a1", "wait-for", "300000"));
    await world.execute(verb("sleep", "a1"));
    expect(await stateAfter(290_000)).toBe("asleep");
    expect(await stateAfter(12_000)).toBe("awake");
  });

  test("a daemon that was down when it was due wakes it late, once", async () => {
    await world.execute(create("a1"));
    await world.execute(configure({ wakeAtMs: world.time.nowMs + 1_000_000 }));
    await world.execute(verb("sleep", "a1"));
    world.life.end();
    await world.time.advance(5_000_000);
    await world.restart();
    await world.time.flush();
    expect(await world.agent("a1")).toMatchObject({
      state: "awake",
      wakeAtMs: null,
      generation: 2,
    });
  });
});

describe("the alarm", () => {
  test("wakes at the time its owner said, and an agent that is awake then is left alone", async () => {
    await world.execute(create("a1"));
    await world.execute(configure({ wakeAtMs: world.time.nowMs + 3_600_000 }));
    expect(await stateAfter(600_000)).toBe("asleep");
    expect(await why()).toMatchObject({ next: { what: "wake" } });
    expect(await stateAfter(3_000_000)).toBe("awake");
    expect((await world.agent("a1")).wakeAtMs).toBeNull();
  });

  test("does not wake it later for a time that came while it was awake", async () => {
    await world.execute(create("a1"));
    await world.execute(hold(3_600_000));
    await world.execute(configure({ wakeAtMs: world.time.nowMs + 100_000 }));
    expect(await stateAfter(200_000)).toBe("awake");
    await world.execute(verb("sleep", "a1"));
    expect(await stateAfter(600_000)).toBe("asleep");
  });

  test("tries again where a wake fails, later each time, and others are woken meanwhile", async () => {
    await world.execute(create("a1"));
    await world.execute(create("a2"));
    const atMs = world.time.nowMs + 300_000;
    for (const agent of ["a1", "a2"]) {
      await world.execute(verb("sleep", agent));
      await world.execute({ kind: "configure", tenant: "default", agent, wakeAtMs: atMs });
    }
    const error = new PerdureError("machine_start_failed", "no VM can be started");
    world.faults.arm("substrate.takeSpare", { kind: "fail", error });
    await world.time.advance(301_000);
    const states = [await world.agent("a1"), await world.agent("a2")].map(({ state }) => state);
    expect(states.sort()).toEqual(["asleep", "awake"]);
    await world.time.advance(10_000);
    for (const name of ["a1", "a2"]) expect((await world.agent(name)).state).toBe("awake");
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a wall clock that is set forward wakes what has become due", async () => {
    await world.execute(create("a1"));
    await world.execute(configure({ wakeAtMs: world.time.nowMs + 24 * 3_600_000 }));
    await world.execute(verb("sleep", "a1"));
    world.time.nowMs += 25 * 3_600_000;
    await world.time.advance(30_000);
    expect((await world.agent("a1")).state).toBe("awake");
  });
});

describe("periodic checkpoints", () => {
  beforeEach(() => {
    Object.assign(world.defaults, { idleAfterMs: null, checkpointEveryMs: 60_000 });
  });
  const cuts = async () => {
    const { id } = await world.agent("a1");
    return (await world.state.checkpoints(id)).map(({ kind }) => kind);
  };

  test("are taken while something changes and skipped while nothing does", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 3);
    await world.time.advance(130_000);
    expect(await cuts()).toEqual(["periodic"]);
    const first = (await world.agent("a1")).head;
    await world.time.advance(3_600_000);
    expect((await world.agent("a1")).head).toEqual(first);
    await count(world, "a1", 1);
    await world.time.advance(70_000);
    const second = (await world.agent("a1")).head;
    expect(second?.checkpoint).not.toBe(first?.checkpoint);
    expect(await cuts()).toEqual(["periodic"]);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("are what a crash is recovered from", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 3);
    await world.time.advance(130_000);
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1", 1)).toBe(4);
  });

  test("one that fails is skipped, and the agent goes on", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 3);
    const error = new PerdureError("disk_full", "injected");
    world.faults.arm("checkpoints.write", { kind: "fail", error });
    await world.time.advance(70_000);
    expect(await cuts()).toEqual([]);
    expect(world.complaints.join()).toContain("A periodic checkpoint was skipped");
    await world.time.advance(70_000);
    expect(await cuts()).toEqual(["periodic"]);
  });
});

describe("quarantine", () => {
  test("bars an awake agent until it is released, with all that it has", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 5);
    await world.execute({ kind: "quarantine", ...target, reason: "looks odd" });
    for (const refused of [verb("wake", "a1"), exec("a1", "echo", "x"), verb("sleep", "a1")]) {
      await expect(world.execute(refused)).rejects.toMatchObject({ code: "agent_quarantined" });
    }
    expect(await why()).toMatchObject({
      reasons: [{ reason: "quarantined", detail: "looks odd" }],
      next: null,
    });
    await world.restart();
    expect(await violationsOf(world)).toEqual([]);
    await world.execute({ kind: "release", ...target });
    expect((await world.agent("a1")).state).toBe("asleep");
    expect(await count(world, "a1", 1)).toBe(6);
  });

  test.each([
    ["whose sleep finds no room", "checkpoints.reserve", "disk_full"],
    ["whose VM does not answer", "machine.saveDevices", "machine_failed"],
  ] as const)("bars an agent %s: it is ended", async (_, point, code) => {
    await world.execute(create("a1"));
    await count(world, "a1", 5);
    await world.execute(checkpoint("a1", "kept"));
    await count(world, "a1", 1);
    world.faults.fail(point, code);
    await world.execute({ kind: "quarantine", ...target, reason: "fills the disk" });
    world.faults.clear();
    expect(await world.agent("a1")).toMatchObject({
      state: "quarantined",
      quarantine: { reason: "fills the disk", from: "failed" },
    });
    expect(world.host.processes.filter(({ running }) => running)).toEqual([]);
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "agent_quarantined",
    });
    await world.execute({ kind: "release", ...target });
    expect(await world.agent("a1")).toMatchObject({
      state: "failed",
      failure: { reason: "quarantined" },
    });
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1", 1)).toBe(6);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("is not woken by an alarm", async () => {
    await world.execute(create("a1"));
    await world.execute(configure({ wakeAtMs: world.time.nowMs + 100_000 }));
    await world.execute({ kind: "quarantine", ...target, reason: "looks odd" });
    expect(await stateAfter(1_000_000)).toBe("quarantined");
  });

  test("is where the gate puts an agent whose cut is of a generation that was never given out", async () => {
    await world.execute(create("a1"));
    await count(world, "a1", 5);
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    await world.execute(verb("sleep", "a1"));
    const agent = await world.agent("a1");
    // As after an older copy of the database was put in its place.
    const older = { ...agent, generation: 1, revision: agent.revision + 1 };
    const expectedRevision = agent.revision;
    await world.state.commit([{ kind: "update-agent", agent: older, expectedRevision }]);
    world.commits.generations.set(agent.id, 1);
    await world.restart();
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "agent_quarantined",
    });
    const barred = await world.agent("a1");
    expect(barred).toMatchObject({ state: "quarantined", report: { verdict: "quarantine" } });
    expect(barred.report?.checks).toContainEqual(
      expect.objectContaining({ check: "generations", outcome: "failed" }),
    );
    expect(world.host.processes.filter(({ running }) => running)).toEqual([]);
  });
});
