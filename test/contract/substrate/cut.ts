/** What a cut holds is what the next machine has, byte for byte. */
import { PAGE_BYTES } from "@perdure/protocol";
import { expect, test } from "vitest";
import { PAGE_BATCH_BYTES_MAX } from "../../../packages/daemon/src/core/ports/page.ts";
import { batchesOf, joined, pagesOf, sha256 } from "./cut-bytes.ts";
import { DISK_BYTES, HELD_BYTES, type SubstrateRig } from "./rig.ts";

export function cutTests(rig: SubstrateRig): void {
  test("a cut restored in another process is equal, byte for byte", async () => {
    const first = await rig.wake(rig.template);
    const before = await first.guest.ticks();
    const changed = await first.guest.hold(HELD_BYTES, 3);
    const cut = await rig.cutOf(first.machine, first.chain);
    expect(cut.indexes).toEqual(cut.indexes.toSorted());
    expect(cut.indexes.length).toBeGreaterThanOrEqual(HELD_BYTES / PAGE_BYTES);
    const second = await rig.load(cut);
    // All of the memory, so that a page that the scan overlooks shows.
    const pages = rig.spec.shape.memoryBytes / PAGE_BYTES;
    const every = Uint32Array.from({ length: pages }, (_, index) => index);
    const then = sha256(await pagesOf(first.machine, every));
    expect(sha256(await pagesOf(second.machine, every))).toBe(then);
    await second.machine.run();
    await second.guest.ready();
    expect(await second.guest.held()).toBe(changed);
    expect(await second.guest.ticks()).toBeGreaterThanOrEqual(before);
  });

  test("a cut of a restored machine restores again, three times over", async () => {
    let cut = rig.template;
    const sums: string[] = [];
    const written: string[] = [];
    for (let cycle = 0; cycle < 3; cycle++) {
      const { machine, guest, chain } = await rig.wake(cut);
      if (cycle > 0) expect(await guest.held()).toBe(sums.at(-1));
      sums.push(await guest.hold(HELD_BYTES, 10 + cycle));
      written.push(await guest.writeDisk((1 + cycle) * DISK_BYTES, DISK_BYTES, 20 + cycle));
      cut = await rig.cutOf(machine, chain);
      guest.close();
      await machine.kill();
    }
    const { guest } = await rig.wake(cut);
    expect(await guest.held()).toBe(sums.at(-1));
    expect(await guest.readDisk(0, DISK_BYTES)).toBe(rig.onDisk);
    for (const [cycle, sum] of written.entries()) {
      expect(await guest.readDisk((1 + cycle) * DISK_BYTES, DISK_BYTES)).toBe(sum);
    }
  });

  test("two machines woken from one cut go separate ways", async () => {
    const parent = await rig.wake(rig.template);
    const common = await parent.guest.hold(HELD_BYTES, 4);
    const cut = await rig.cutOf(parent.machine, parent.chain);
    const [first, second] = [await rig.wake(cut), await rig.wake(cut)];
    const changed = await first.guest.hold(HELD_BYTES, 5);
    await first.guest.writeDisk(0, DISK_BYTES, 6);
    expect(await second.guest.held()).toBe(common);
    expect(await second.guest.readDisk(0, DISK_BYTES)).toBe(rig.onDisk);
    expect(await first.guest.held()).toBe(changed);
  });

  test("a page that is zero in the cut is zero after the wake", async () => {
    const parent = await rig.wake(rig.template);
    await parent.guest.hold(HELD_BYTES, 7);
    const cut = await rig.cutOf(parent.machine, parent.chain);
    const machine = rig.mine(await rig.substrate.takeSpare(rig.spec));
    const { indexes } = cut;
    await machine.injectMemory(batchesOf({ ...cut, bytes: new Uint8Array(cut.bytes.length) }));
    const bytes = await pagesOf(machine, indexes);
    expect(bytes.every((byte) => byte === 0)).toBe(true);
  });

  test("many pages come in batches within the limit, in order", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    await guest.hold(3 * PAGE_BATCH_BYTES_MAX, 8);
    const cut = await rig.cutOf(machine, chain);
    const indexes: number[] = [];
    let batches = 0;
    for await (const batch of machine.readPages(cut.indexes)) {
      expect(batch.bytes.length).toBe(batch.indexes.length * PAGE_BYTES);
      expect(batch.bytes.length).toBeLessThanOrEqual(PAGE_BATCH_BYTES_MAX);
      indexes.push(...batch.indexes);
      batches++;
    }
    expect(indexes).toEqual([...cut.indexes]);
    expect(batches).toBeGreaterThan(2);
  });

  test("a cut and a wake that were prepared are like any other, and another layer may be taken for it", async () => {
    const { machine, guest, chain } = await rig.wake(rig.template);
    await machine.prepareCut(await rig.subject.newLayer());
    await guest.hold(PAGE_BATCH_BYTES_MAX, 15);
    const layer = await rig.subject.newLayer();
    await machine.prepareCut(layer);
    const changed = await guest.hold(2 * PAGE_BATCH_BYTES_MAX, 11);
    const older = await guest.writeDisk(0, DISK_BYTES, 12);
    const { batches, devices } = await machine.cut(layer);
    expect(await machine.isRunning()).toBe(false);
    const { indexes, bytes } = joined(batches);
    await machine.run();
    await guest.writeDisk(0, DISK_BYTES, 13);
    const second = await rig.cutOf(machine, { ...chain, layerPaths: [...chain.layerPaths, layer] });
    expect(second.indexes.length).toBeGreaterThan(0);
    guest.close();
    await machine.kill();
    const woken = await rig.wake({ indexes, bytes, devices, layers: chain.layerPaths }, true);
    expect(await woken.guest.held()).toBe(changed);
    expect(await woken.guest.readDisk(0, DISK_BYTES)).toBe(older);
  });
}
