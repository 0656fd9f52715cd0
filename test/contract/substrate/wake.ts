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

  test("device state that is none is refused", async () => {
    const spare = rig.mine(await rig.substrate.takeSpare(rig.spec));
    await refuses(spare.loadDevices(new Uint8Array(1000)), "machine_failed");
  });
}
