/**
 * What a verb left that could not even store how it failed heals while the daemon lives: by itself, and at
 * once for whoever asks next. Nothing is lost, nothing runs twice, and reads go on (I1, I2, I10).
 */
import { PerdureError } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { momentOf } from "../../../../test/simulation/cut-log.ts";
import { expectWhole } from "../../../../test/simulation/invariant.ts";
import { count, create, recover, restore, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

const HEALED_MS = 1_000;
const error = new PerdureError("disk_full", "The disk is full");

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await world.execute(verb("sleep", "a1"));
  await world.execute(verb("wake", "a1"));
  await count(world, "a1", 10);
});

/** The next commits but `skip` fail, so many `times`. */
function failCommits(skip: number, times = Number.MAX_SAFE_INTEGER): void {
  world.faults.arm("state.commit", { kind: "fail", error }, { skip, times });
}

describe("by itself, without anybody asking", () => {
  test.each(["machine.kill", "checkpoints.removeAgent", "state.commit"])(
    "a remove that failed at %s is finished",
    async (point) => {
      // The first commit marks the agent; the ones after those that fail are of the next agent.
      const when = point === "state.commit" ? { skip: 1 } : { times: 3 };
      world.faults.arm(point, { kind: "fail", error }, when);
      await expect(world.execute(verb("remove", "a1"))).rejects.toMatchObject({
        code: "disk_full",
      });
      expect(await world.execute(create("a1"))).toMatchObject({ state: "awake", generation: 1 });
      await world.time.advance(20 * HEALED_MS);
      await expectWhole(world, { leftovers: true });
      expect(await world.state.allAgents()).toHaveLength(1);
      expect(world.folder.agents.size).toBe(1);
    },
  );

  test("a wake that could not be undone: asleep again, and its VM is gone", async () => {
    await world.execute(verb("sleep", "a1"));
    failCommits(1);
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    expect((await world.agent("a1")).state).toBe("waking");
    await world.time.advance(10 * HEALED_MS);
    expect((await world.agent("a1")).state).toBe("waking");
    world.faults.clear();
    await world.time.advance(60 * HEALED_MS);
    expect((await world.agent("a1")).state).toBe("asleep");
    await expectWhole(world, { leftovers: true });
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
  });

  test("a wake whose VM could not be ended never has a second one beside it", async () => {
    await world.execute(verb("sleep", "a1"));
    world.faults.fail("link.sync", "guest_timeout");
    world.faults.fail("machine.kill", "machine_failed", { times: 2 });
    await expect(world.execute(verb("wake", "a1"))).rejects.toBeInstanceOf(PerdureError);
    // The next one meets the process that is still there, and tries to end it first.
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({
      code: "machine_failed",
    });
    await world.time.advance(10 * HEALED_MS);
    expect((await world.agent("a1")).state).toBe("asleep");
    await expectWhole(world, { leftovers: true });
  });

  test("a sleep whose end could not be stored either way: awake, thawed, with all it had", async () => {
    failCommits(1);
    await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    expect((await world.agent("a1")).state).toBe("falling-asleep");
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 2 });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("a stop that the guest refused, which could not be stored: awake", async () => {
    world.faults.fail("link.shutdown", "guest_timeout");
    failCommits(1);
    await expect(world.execute(verb("stop", "a1"))).rejects.toBeInstanceOf(PerdureError);
    expect((await world.agent("a1")).state).toBe("stopping");
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 2 });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("a stop that could not even begin: the end of the VM is noticed after it", async () => {
    failCommits(0, 1);
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    expect((await world.agent("a1")).state).toBe("failed");
    await expectWhole(world, { leftovers: true });
  });

  test("a stop whose power-off could not be stored: stopped", async () => {
    failCommits(1);
    await expect(world.execute(verb("stop", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect((await world.agent("a1")).state).toBe("stopped");
    await expectWhole(world, { leftovers: true });
    await world.execute(verb("start", "a1"));
    expect(await count(world, "a1")).toBe(11);
  });

  test.each([
    ["exited", "failed", "crashed"],
    ["panic", "failed", "panic"],
    ["shutdown", "stopped", undefined],
    ["reset", "awake", undefined],
  ] as const)("%s of a VM that could not be stored: %s", async (kind, state, reason) => {
    failCommits(0);
    (await world.process("a1")).happen(kind, "as it is told");
    await world.time.advance(3 * HEALED_MS);
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 2 });
    world.faults.clear();
    await world.time.advance(10 * HEALED_MS);
    const agent = await world.agent("a1");
    expect([agent.state, agent.failure?.reason]).toEqual([state, reason]);
    await expectWhole(world, { leftovers: true });
  });

  test("a pause by a full disk that could not be stored: paused, and it goes on", async () => {
    failCommits(0);
    world.host.roomForDisk = false;
    (await world.process("a1")).happen("io-error");
    await world.time.flush();
    expect((await world.agent("a1")).paused).toBeNull();
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect((await world.agent("a1")).paused).toBe("disk full");
    world.host.roomForDisk = true;
    await world.time.advance(10 * HEALED_MS);
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("an agent whose VM does not answer at a restart keeps only its own callers waiting", async () => {
    await world.execute(create("a2"));
    world.life.end();
    world.faults.hang("machine.run");
    await world.restart();
    const answered: string[] = [];
    const counts = ["a1", "a2"].map(async (name) => {
      await world.engine.execute(verb("wake", name));
      answered.push(name);
    });
    await world.time.advance(HEALED_MS);
    expect(answered).toHaveLength(1);
    world.faults.release();
    await world.run(Promise.all(counts));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("an agent that could not be taken over at a restart is, with its VM as it was", async () => {
    world.life.end();
    failCommits(0);
    await world.restart();
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect(await world.agent("a1")).toMatchObject({ state: "awake", generation: 2 });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });
});

describe("an agent that waited for room", () => {
  test("and has it at a restart that cannot store so is not taken for paused for ever", async () => {
    world.host.roomForDisk = false;
    (await world.process("a1")).happen("io-error");
    await world.time.flush();
    world.life.end();
    world.host.roomForDisk = true;
    failCommits(0);
    await world.restart();
    world.faults.clear();
    await world.time.advance(HEALED_MS);
    expect((await world.agent("a1")).paused).toBeNull();
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });
});

describe("for whoever asks before that", () => {
  test("a wake is carried out from the state that was left", async () => {
    await world.execute(verb("sleep", "a1"));
    failCommits(1, 2);
    await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    expect((await world.agent("a1")).state).toBe("waking");
    expect(await world.execute(verb("wake", "a1"))).toMatchObject({ agent: { state: "awake" } });
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("a VM that ended unrecorded is recovered by a wake, not taken for awake", async () => {
    await world.execute(verb("checkpoint", "a1"));
    failCommits(0, 1);
    (await world.process("a1")).happen("exited");
    await world.time.flush();
    expect((await world.agent("a1")).state).toBe("awake");
    expect(await world.execute(verb("wake", "a1"))).toMatchObject({
      agent: { state: "awake", generation: 3 },
      report: { route: "recover" },
    });
    expect(momentOf(await world.guest("a1"))).toMatchObject({ counter: 10 });
    await expectWhole(world, { leftovers: true });
  });

  test("a removed agent is gone for good, and nobody looks for it any more", async () => {
    world.faults.fail("checkpoints.removeAgent", "disk_full");
    const verbs = [verb("remove", "a1"), verb("sleep", "a1")];
    const answers = await world.run(
      Promise.allSettled(verbs.map((each) => world.engine.execute(each))),
    );
    expect(answers).toMatchObject([
      { reason: { code: "disk_full" } },
      { reason: { code: "agent_not_found" } },
    ]);
    expect(await world.state.allAgents()).toEqual([]);
    await world.time.advance(100 * HEALED_MS);
    expect(world.complaints.filter((each) => each.includes("settled"))).toEqual([]);
    await expectWhole(world, { leftovers: true });
  });

  test("reads are answered all the while, also while it is being settled", async () => {
    failCommits(1, 2);
    await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({ code: "disk_full" });
    world.faults.hang("link.setClock");
    await world.time.advance(HEALED_MS);
    const target = { tenant: "default", agent: "a1" };
    expect(await world.engine.show(target)).toMatchObject({ state: "falling-asleep" });
    expect((await world.engine.list({ tenant: "default", limit: 10 })).agents).toHaveLength(1);
    world.faults.clear();
    await expectWhole(world, { leftovers: true });
  });
});

describe("a create", () => {
  test("that was let out is answered as such, whatever fails after", async () => {
    world.faults.fail("checkpoints.storedBytes", "internal");
    expect(await world.execute(create("a2"))).toMatchObject({ name: "a2", state: "awake" });
    expect(world.complaints.join()).toContain("A new agent is awake");
    expect(await count(world, "a2")).toBe(1);
    await expectWhole(world, { leftovers: true });
  });

  test("whose files could not be taken away again leaves nothing after a while", async () => {
    world.faults.fail("link.sync", "guest_timeout");
    world.faults.fail("checkpoints.removeAgent", "disk_full");
    await expect(world.execute(create("a2"))).rejects.toBeInstanceOf(PerdureError);
    await world.time.advance(HEALED_MS);
    expect(await world.state.allAgents()).toHaveLength(1);
    expect(world.folder.agents.size).toBe(1);
    await expectWhole(world, { leftovers: true });
    expect(await world.execute(create("a2"))).toMatchObject({ state: "awake" });
  });

  test("under way is let be by verbs that find its name, at whatever moment", async () => {
    let asked = 0;
    world.faults.onPoint = () => {
      if (asked++ < 100) world.engine.execute(verb("wake", "a2")).catch(() => undefined);
      return null;
    };
    expect(await world.execute(create("a2"))).toMatchObject({ state: "awake", generation: 1 });
    await world.time.advance(2 * HEALED_MS);
    expect(await count(world, "a2")).toBe(1);
    await expectWhole(world, { leftovers: true });
  });
});

test("nothing is settled, nor a machine ended, by a daemon that closes", async () => {
  failCommits(1);
  await world.execute(verb("sleep", "a1")).catch(() => undefined);
  const process = await world.process("a1");
  await world.close();
  world.faults.clear();
  await world.time.advance(100 * HEALED_MS);
  expect(world.host.processes).toContain(process);
  await world.restart();
  expect(await count(world, "a1")).toBe(11);
  await expectWhole(world, { leftovers: true });
});

describe("a machine that cannot be taken over, because its base is gone", () => {
  async function afterRestart(vm: "lives" | "is gone"): Promise<void> {
    if (vm === "is gone") (await world.process("a1")).happen("exited", "killed from outside");
    world.life.end();
    world.templates.clear();
    await world.restart();
  }

  test.each(["lives", "is gone"] as const)("is removed all the same, VM %s", async (vm) => {
    await afterRestart(vm);
    await world.execute(verb("remove", "a1"));
    await expectWhole(world, { leftovers: true });
  });

  test.each(["lives", "is gone"] as const)("is recovered from its disk, VM %s", async (vm) => {
    await afterRestart(vm);
    await world.execute(recover("a1", "disk"));
    expect(await count(world, "a1")).toBe(11);
    await expectWhole(world, { leftovers: true });
  });

  test("is failed where its VM is gone, so that wake recovers it", async () => {
    await afterRestart("is gone");
    expect((await world.agent("a1")).state).toBe("failed");
  });

  test("is left alone by other verbs while its VM lives", async () => {
    await afterRestart("lives");
    await expect(world.execute(verb("sleep", "a1"))).rejects.toThrow(/base/);
    await expect(world.execute(restore("a1", "typo"))).rejects.toThrow(/base/);
    expect((await world.process("a1")).gone).toBe(false);
  });
});
