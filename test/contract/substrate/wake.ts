/** A wake from a template, and its steps in the wrong order. */
import { PAGE_BYTES } from "@perdure/protocol";
import { expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { batchesOf } from "./cut-bytes.ts";
import { DISK_BYTES, type SubstrateRig } from "./rig.ts";

export function wakeTests(rig: SubstrateRig): void {
  test("a template wakes with its memory and its disk", async () => {
    const { guest } = await rig.wake(rig.template);
    expect(await guest.held()).toBe(rig.held);
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(rig.onDisk);
  });

  test("steps of a wake are refused in the wrong order", async () => {
    const spare = rig.mine(await rig.substrate.takeSpare(rig.spec));
    await refuses(spare.run(), "machine_failed");
    const { machine, chain } = await rig.wake(rig.template);
    await refuses(machine.loadDevices(rig.template.devices), "machine_failed");
    const page = { indexes: Uint32Array.of(0), bytes: new Uint8Array(PAGE_BYTES) };
    await refuses(machine.injectMemory(batchesOf(page)), "machine_failed");
    await refuses(machine.attachDisk(chain), "machine_failed");
  });

  test("the time by which a clock is moved has passed on the guest's monotonic clock, at once", async () => {
    const { movableClock } = await rig.substrate.facts(rig.spec);
    expect(movableClock).toBe("tsc");
    const first = await rig.wake(rig.template);
    const before = await first.guest.clocks();
    const cut = await rig.cutOf(first.machine, first.chain);
    for (const ms of [0, 600_000, 36_000_000, 30 * 86_400_000]) {
      const { machine, guest } = await rig.wake(cut, false, { ms, tscHz: null });
      const after = await guest.clocks();
      const passedMs = after.monotonicMs - before.monotonicMs;
      // A rate that is not the guest's own is right to within a tenth of a thousandth.
      expect(passedMs).toBeGreaterThanOrEqual(ms * 0.9999);
      expect(passedMs).toBeLessThan(ms * 1.0001 + 60_000);
      expect(after.bootMs - after.monotonicMs).toBeCloseTo(before.bootMs - before.monotonicMs, -1);
      expect(await guest.readDisk(0, DISK_BYTES)).toBe(rig.onDisk);
      guest.close();
      await machine.kill();
    }
  });

  test("an advance that cannot be is refused before anything is loaded", async () => {
    const spare = rig.mine(await rig.substrate.takeSpare(rig.spec));
    for (const ms of [-1, Number.NaN, 401 * 86_400_000]) {
      await refuses(spare.loadDevices(rig.template.devices, { ms, tscHz: null }), "machine_failed");
    }
    await refuses(spare.loadDevices(rig.template.devices, { ms: 1, tscHz: -1 }), "machine_failed");
  });

  test("device state that is none is refused", async () => {
    const spare = rig.mine(await rig.substrate.takeSpare(rig.spec));
    await refuses(spare.loadDevices(new Uint8Array(1000)), "machine_failed");
  });
}
