/** Machines that outlive their daemon: released, adopted by the next one, or swept. */
import { expect, test } from "vitest";
import type { MachineRecord } from "../../../packages/daemon/src/core/ports/substrate.ts";
import { refuses } from "../refusal.ts";
import { nextEvent } from "./next-event.ts";
import { HELD_BYTES, type SubstrateRig } from "./rig.ts";

export function adoptionTests(rig: SubstrateRig): void {
  test("a released machine runs on and is adopted by the next daemon", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    const changed = await guest.hold(HELD_BYTES, 11);
    guest.close();
    await machine.release();
    const next = await rig.subject.open();
    const adopted = rig.mine((await next.adopt(machine.record, rig.spec)) ?? fail("Not adopted"));
    expect(adopted.facts).toEqual(machine.facts);
    expect(await adopted.isRunning()).toBe(true);
    const again = rig.guestOf(adopted);
    await again.ready();
    expect(await again.held()).toBe(changed);
    const cut = await rig.cutOf(adopted, chain);
    const { guest: woken } = await rig.wake(cut);
    expect(await woken.held()).toBe(changed);
    await next.close();
  });

  test("what happened while no daemon watched is told after the adoption", async () => {
    const { machine, guest } = await rig.wake(rig.template);
    const event = nextEvent(machine);
    guest.end("reset");
    await event;
    await machine.release();
    const adopted = rig.mine(
      (await rig.substrate.adopt(machine.record, rig.spec)) ?? fail("Not adopted"),
    );
    expect((await nextEvent(adopted)).kind).toBe("reset");
  });

  test("only the very process of a record is adopted", async () => {
    const { machine } = await rig.wake(rig.template);
    const { record } = machine;
    await machine.release();
    const others: MachineRecord[] = [
      { ...record, startTicks: record.startTicks + 1 },
      { ...record, pid: process.pid },
      { ...record, hostBootId: "another boot" },
    ];
    for (const other of others) expect(await rig.substrate.adopt(other, rig.spec)).toBeNull();
    expect(
      rig.mine((await rig.substrate.adopt(record, rig.spec)) ?? fail("Not adopted")).record.pid,
    ).toBe(record.pid);
  });

  test("sweep ends what is not kept and nothing else", async () => {
    const [kept, dropped] = [await rig.wake(rig.template), await rig.wake(rig.template)];
    for (const { machine } of [kept, dropped]) await machine.release();
    const next = await rig.subject.open();
    expect(await next.sweep([kept.machine.record.id])).toBe(1);
    expect(await next.adopt(dropped.machine.record, rig.spec)).toBeNull();
    const adopted = rig.mine(
      (await next.adopt(kept.machine.record, rig.spec)) ?? fail("Not adopted"),
    );
    expect(await adopted.isRunning()).toBe(true);
    expect(await next.sweep([kept.machine.record.id])).toBe(0);
    await next.close();
    expect(await adopted.isRunning()).toBe(true);
  });

  test("a record is not adopted as another spec", async () => {
    const { machine } = await rig.wake(rig.template);
    await machine.release();
    const shape = { ...rig.spec.shape, cpus: rig.spec.shape.cpus + 1 };
    await refuses(rig.substrate.adopt(machine.record, { ...rig.spec, shape }), "machine_failed");
    rig.mine((await rig.substrate.adopt(machine.record, rig.spec)) ?? fail("Not adopted"));
  });
}

function fail(reason: string): never {
  throw new Error(reason);
}
