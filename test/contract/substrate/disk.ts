/** Layers of a disk: what is covered stays, and what is merged reads the same. */
import { readFile, rm } from "node:fs/promises";
import { expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { sha256 } from "./cut-bytes.ts";
import { DISK_BYTES, type SubstrateRig } from "./rig.ts";

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
