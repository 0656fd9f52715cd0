/** A VM that ends in the middle of a verb: one typed error with the way back, whatever broke first. */
import type { PerdureError } from "@perdure/protocol";
import { beforeEach, expect, test } from "vitest";
import { checkpoint, count, create, exec, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import type { Command } from "./command.ts";

let world: World;
let raw: Error;
beforeEach(async () => {
  world = new World();
  raw = Object.assign(new Error("kill ESRCH"), { code: "ESRCH" });
  await world.execute(create("a1"));
  await count(world, "a1", 10);
});

/** Ends the VM at `point`, where the system then says something of its own. */
function endAt(point: string): void {
  world.faults.arm(point, {
    kind: "do",
    work: async () => {
      const process = await world.process("a1");
      // What breaks first is noticed before the process is gone.
      void world.time.wait(5).then(() => process.happen("exited", "killed by SIGKILL"));
      throw raw;
    },
  });
}

async function failure(command: Command): Promise<PerdureError> {
  return world.execute(command).then(
    () => expect.fail("It did not fail"),
    (error: unknown) => error as PerdureError,
  );
}

function expectEnded(error: PerdureError, during: string, wayBack: string): void {
  expect(error).toMatchObject({
    code: "machine_failed",
    message: `The VM of agent "a1" ended during ${during}: killed by SIGKILL`,
    hint: expect.stringContaining(wayBack) as string,
  });
  expect(error.cause).toBe(raw);
}

test.each([
  ["sleep", "machine.pause", verb("sleep", "a1"), "its sleep"],
  ["sleep", "machine.privatePages", verb("sleep", "a1"), "its sleep"],
  ["sleep", "machine.readBatch", verb("sleep", "a1"), "its sleep"],
  ["sleep", "machine.saveDevices", verb("sleep", "a1"), "its sleep"],
  ["checkpoint", "machine.changedPages", checkpoint("a1", "c"), "a checkpoint"],
  ["checkpoint", "link.freeze", checkpoint("a1", "c"), "a checkpoint"],
  ["checkpoint", "machine.saveDevices", checkpoint("a1", "c"), "a checkpoint"],
  ["stop", "link.shutdown", verb("stop", "a1"), "its stop"],
  ["exec", "link.exec", exec("a1", "count", "1"), "a call"],
] as const)(
  "%s (%s) says that the VM ended, and what recovers it",
  async (_, point, command, during) => {
    endAt(point);
    expectEnded(await failure(command), during, "perdure recover a1");
    await world.time.advance(1_000);
    const agent = await world.agent("a1");
    expect(agent).toMatchObject({ state: "failed", failure: { reason: "crashed" } });
    expect(agent.failure?.message).toContain("killed by SIGKILL");
  },
);

test.each(["machine.attachDisk", "machine.loadDevices", "link.sync", "link.setClock"])(
  "wake (%s) says that the VM ended, and that it can be tried again",
  async (point) => {
    await world.execute(verb("sleep", "a1"));
    endAt(point);
    expectEnded(await failure(verb("wake", "a1")), "its wake", "perdure wake a1");
    expect((await world.agent("a1")).state).toBe("asleep");
    await world.execute(verb("wake", "a1"));
    expect(await count(world, "a1")).toBe(11);
  },
);

test("a wake whose VM ends once it was let out says so, and what recovers it", async () => {
  await world.execute(verb("sleep", "a1"));
  endAt("link.thaw");
  const refuse = (): never => {
    throw raw;
  };
  world.faults.arm("links.connect", { kind: "do", work: refuse }, { skip: 1 });
  expectEnded(await failure(verb("wake", "a1")), "its wake", "perdure recover a1");
  await world.time.advance(1_000);
  expect((await world.agent("a1")).state).toBe("failed");
});

test("a verb that fails under a VM that lives says what it met", async () => {
  world.faults.fail("machine.saveDevices");
  await expect(world.execute(checkpoint("a1", "c"))).rejects.toThrow("Fault injected");
  expect(await count(world, "a1")).toBe(11);
});
