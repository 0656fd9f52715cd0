/** What a substrate and a machine tell of themselves, and that a paused machine stands still. */
import { expect, test } from "vitest";
import { pagesOf } from "./cut-bytes.ts";
import { HELD_BYTES, type SubstrateRig } from "./rig.ts";

export function machineTests(rig: SubstrateRig): void {
  test("facts of a spec are those of its machines", async () => {
    const facts = await rig.substrate.facts(rig.spec);
    expect(await rig.substrate.facts(rig.spec)).toEqual(facts);
    expect(rig.mine(await rig.substrate.takeSpare(rig.spec)).facts).toEqual(facts);
    const other = { ...rig.spec, shape: { ...rig.spec.shape, cpus: 2 } };
    expect((await rig.substrate.facts(other)).deviceDigest).not.toBe(facts.deviceDigest);
  });

  test("run and pause may be repeated, and time stands still in between", async () => {
    const { machine, guest } = await rig.wake(rig.template);
    await machine.run();
    expect(await machine.isRunning()).toBe(true);
    await machine.pause();
    await machine.pause();
    expect(await machine.isRunning()).toBe(false);
    const first = await machine.privatePages();
    expect(await pagesOf(machine, first)).toEqual(await pagesOf(machine, first));
    await machine.run();
    expect(await guest.held()).toBe(rig.held);
  });

  test("usage and console speak of the machine", async () => {
    const { machine, guest } = await rig.wake(rig.template);
    await guest.hold(HELD_BYTES, 12);
    await machine.pause();
    const usage = await machine.usage();
    expect(usage.privateBytes).toBeGreaterThan(HELD_BYTES);
    expect(usage.pssBytes).toBeGreaterThan(HELD_BYTES);
    expect((await machine.consoleTail()).length).toBeLessThanOrEqual(4096);
  });
}
