/** How a machine ends: by its guest, by a crash, by its record, by `kill`. */
import { expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { nextEvent } from "./next-event.ts";
import type { SubstrateRig } from "./rig.ts";

export function endingTests(rig: SubstrateRig): void {
  test("a machine of a record lives until it is ended by it", async () => {
    const { machine } = await rig.wake(rig.template);
    const { record } = machine;
    expect(await rig.substrate.isAlive(record)).toBe(true);
    const other = { ...record, startTicks: record.startTicks + 1 };
    expect(await rig.substrate.isAlive(other)).toBe(false);
    await rig.substrate.end(other);
    expect(await machine.isRunning()).toBe(true);
    await rig.substrate.end(record);
    expect(await rig.substrate.isAlive(record)).toBe(false);
    await rig.substrate.end(record);
  });

  for (const how of ["reset", "shutdown", "panic"] as const) {
    test(`a guest's ${how} is told, also to those who ask later`, async () => {
      const { machine, guest } = await rig.wake(rig.template);
      const event = nextEvent(machine);
      const began = performance.now();
      guest.end(how);
      expect((await event).kind).toBe(how);
      expect(performance.now() - began).toBeLessThan(30_000);
      expect((await nextEvent(machine)).kind).toBe(how);
      expect(await machine.isRunning()).toBe(false);
      await refuses(machine.run(), "machine_failed");
    });
  }

  test("a process that dies is told at once, and its machine fails from then on", async (context) => {
    rig.needs(context, "crash");
    const { machine } = await rig.wake(rig.template);
    const event = nextEvent(machine);
    rig.subject.crash(machine.record);
    expect((await event).kind).toBe("exited");
    await refuses(machine.pause(), "machine_failed");
    await refuses(machine.isRunning(), "machine_failed");
    await machine.kill();
  });

  test("kill may be repeated, and nothing works after it", async () => {
    const { machine } = await rig.wake(rig.template);
    await Promise.all([machine.kill(), machine.kill()]);
    await machine.kill();
    await refuses(machine.run(), "machine_failed");
    expect(await rig.substrate.adopt(machine.record, rig.spec)).toBeNull();
  });
}
