/** Layers of a disk: what is covered stays, and what is merged reads the same. */
import { readFile, rm } from "node:fs/promises";
import { expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { batchesOf, sha256 } from "./cut-bytes.ts";
import { DISK_BYTES, type SubstrateRig } from "./rig.ts";
import type { TestGuest } from "./subject.ts";

const GROWTH_BYTES = 64 * 1024 * 1024;

/** The checksum of what was written at `offset`, as soon as the guest knows of its larger disk. */
async function writtenBeyond(guest: TestGuest, offset: number): Promise<string> {
  let sum = "";
  const written = async (): Promise<string> =>
    (sum = await guest.writeDisk(offset, DISK_BYTES, 34).catch(() => ""));
  await expect.poll(written).not.toBe("");
  return sum;
}

export function diskTests(rig: SubstrateRig): void {
  test("a layer that was covered does not change any more", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    const older = await guest.writeDisk(0, DISK_BYTES, 9);
    await machine.pause();
    await machine.addLayer(await rig.subject.newLayer());
    const covered = chain.layerPaths.at(-1) ?? "";
    const digest = sha256(await readFile(covered));
    await machine.run();
    const newer = await guest.writeDisk(0, DISK_BYTES, 10);
    expect(newer).not.toBe(older);
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(newer);
    expect(sha256(await readFile(covered))).toBe(digest);
    guest.close();
    await machine.kill();
    const layerPaths = [...chain.layerPaths, await rig.subject.newLayer()];
    const zero = { ...rig.spec, base: { kind: "zero" } } as const;
    const cold = rig.mine(await rig.substrate.bootCold(zero, { imagePath: null, layerPaths }));
    const coldGuest = rig.guestOf(cold);
    await cold.run();
    await coldGuest.ready();
    expect(await coldGuest.readDisk(0, DISK_BYTES)).toBe(older);
  });

  test("layers are merged into the top that is written, and into no other", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    const onDisk = await guest.writeDisk(0, DISK_BYTES, 14);
    const next = await rig.subject.newLayer();
    const [below = ""] = chain.layerPaths;
    await refuses(machine.mergeLayers(below, next), "machine_failed");
    await machine.pause();
    await machine.addLayer(next);
    await machine.run();
    await refuses(machine.mergeLayers(below, chain.layerPaths.at(-1) ?? ""), "machine_failed");
    await machine.mergeLayers(below, next);
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
  });

  test("a disk grows while the guest runs, and never shrinks; what is written there stays", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    const { diskBytes } = rig.spec.shape;
    const onDisk = await guest.writeDisk(0, DISK_BYTES, 31);
    await expect(guest.writeDisk(diskBytes, DISK_BYTES, 32)).rejects.toThrow();
    await machine.growDisk(diskBytes + GROWTH_BYTES);
    await refuses(machine.growDisk(diskBytes), "machine_failed");
    const beyond = await writtenBeyond(guest, diskBytes);
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
    guest.close();
    await machine.pause();
    await machine.kill();
    const larger = { ...rig.spec.shape, diskBytes: diskBytes + GROWTH_BYTES };
    const spec = { ...rig.spec, shape: larger, base: { kind: "zero" } } as const;
    const cold = rig.mine(await rig.substrate.bootCold(spec, chain));
    const coldGuest = rig.guestOf(cold);
    await cold.run();
    await coldGuest.ready();
    expect(await coldGuest.readDisk(0, DISK_BYTES)).toBe(onDisk);
    expect(await coldGuest.readDisk(diskBytes, DISK_BYTES)).toBe(beyond);
  });

  test("a guest that was captured on a smaller disk goes on, and is told when it is grown", async () => {
    const { diskBytes } = rig.spec.shape;
    const shape = { ...rig.spec.shape, diskBytes: diskBytes + GROWTH_BYTES };
    const first = await rig.wake(rig.template);
    await first.machine.growDisk(shape.diskBytes);
    first.guest.close();
    await first.machine.pause();
    await first.machine.kill();
    const machine = rig.mine(await rig.substrate.takeSpare({ ...rig.spec, shape }));
    const guest = rig.guestOf(machine);
    await machine.attachDisk(first.chain);
    await machine.injectMemory(batchesOf(rig.template));
    await machine.loadDevices(rig.template.devices);
    await machine.run();
    await guest.ready();
    expect(await guest.held()).toBe(rig.held);
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(rig.onDisk);
    await expect(guest.writeDisk(diskBytes, DISK_BYTES, 33)).rejects.toThrow();
    await machine.growDisk(shape.diskBytes);
    const beyond = await writtenBeyond(guest, diskBytes);
    expect(await guest.readDisk(diskBytes, DISK_BYTES)).toBe(beyond);
  });

  test("layers are merged by a machine that never runs, whole once it is paused", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    const onDisk = await guest.writeDisk(0, DISK_BYTES, 21);
    await machine.pause();
    const second = await rig.subject.newLayer();
    await machine.addLayer(second);
    await machine.kill();
    const [below, ...between] = [...chain.layerPaths, second];
    const top = await rig.subject.newLayer();
    const zero = { ...rig.spec, base: { kind: "zero" } } as const;
    const all = { imagePath: null, layerPaths: [below, ...between, top] };
    const merger = rig.mine(await rig.substrate.bootCold(zero, all));
    await merger.mergeLayers(below, top);
    await merger.pause();
    await merger.kill();
    for (const path of between) await rm(path);
    const layerPaths = [below, top, await rig.subject.newLayer()];
    const cold = rig.mine(await rig.substrate.bootCold(zero, { imagePath: null, layerPaths }));
    const reader = rig.guestOf(cold);
    await cold.run();
    await reader.ready();
    expect(await reader.readDisk(0, DISK_BYTES)).toBe(onDisk);
  });
}
