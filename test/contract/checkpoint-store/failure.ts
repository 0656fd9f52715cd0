/** A write that fails leaves nothing, and room is promised before it begins. */
import { expect, it } from "vitest";
import {
  DISK_BYTES,
  PAGE,
  PAGES,
  capture,
  newLayerId,
  sampleDraft,
} from "../checkpoint-store-sample.ts";
import { devices, quiet, zero, type CheckpointStoreRig } from "./rig.ts";

export function failureTests(rig: CheckpointStoreRig): void {
  for (const ownBase of [false, true]) {
    it(`leaves nothing of a write that fails at any of its steps, and the older checkpoint whole (own base: ${ownBase})`, async () => {
      const layer = newLayerId();
      await rig.store.createLayer(rig.agent, layer, DISK_BYTES);
      const pages = rig.somePages(500);
      const older = sampleDraft(rig.agent, { layers: [layer] });
      await rig.store.write(older, rig.state(pages), quiet);
      const memory = await rig.memoryOf(older.checkpoint);
      const before = await rig.store.storedBytes(rig.agent);
      const steps: string[] = [];
      const newer = sampleDraft(rig.agent, { parent: older.checkpoint, layers: [layer] });
      for (const [index, page] of rig.somePages(300)) pages.set(index, page);
      const failAfter = async (count: number): Promise<void> => {
        let seen = 0;
        await rig.store.write(newer, rig.state(pages, zero, ownBase), (step) => {
          if (seen++ === count) throw new Error(`killed at ${step}`);
          if (!steps.includes(step)) steps.push(step);
        });
      };
      let failures = 0;
      for (; failures < 20; failures++) {
        const outcome = await failAfter(failures).then(
          () => null,
          (error: unknown) => error,
        );
        if (outcome === null) break;
        expect(outcome).toMatchObject({
          message: expect.stringContaining("killed at") as string,
        });
        await expect(rig.store.open(rig.agent, newer.checkpoint)).rejects.toMatchObject({
          code: "checkpoint_not_found",
        });
        expect(await rig.store.storedBytes(rig.agent)).toBe(before);
        expect(memory.equals(await rig.memoryOf(older.checkpoint))).toBe(true);
      }
      expect(failures).toBe(5);
      expect(steps).toEqual([
        ownBase ? "base-written" : "pack-written",
        "page-map-written",
        "devices-written",
        "layers-synced",
        "manifest-written",
      ]);
      await rig.memoryOf(newer.checkpoint);
    });
  }

  it("leaves nothing of a write whose capture breaks off", async () => {
    const before = await rig.store.storedBytes(rig.agent);
    const draft = sampleDraft(rig.agent);
    const broken = (async function* () {
      yield* capture(rig.somePages(2000));
      throw new Error("the machine is gone");
    })();
    const captured = { base: zero, pages: broken, devices, ownBase: false };
    await expect(rig.store.write(draft, captured, quiet)).rejects.toThrow("the machine is gone");
    expect(await rig.store.storedBytes(rig.agent)).toBe(before);
  });

  it("refuses pages that are out of order or beyond the memory", async () => {
    for (const indexes of [Uint32Array.of(5, 4), Uint32Array.of(0, PAGES)]) {
      const batch = { indexes, bytes: new Uint8Array(2 * PAGE).fill(1) };
      const pages = (async function* () {
        yield await Promise.resolve(batch);
      })();
      const draft = sampleDraft(rig.agent);
      const captured = { base: zero, pages, devices, ownBase: false };
      await expect(rig.store.write(draft, captured, quiet)).rejects.toMatchObject({
        code: "internal",
      });
    }
  });

  it("names the bytes needed and free where room cannot be reserved, and counts what is promised", async () => {
    const much = 2 ** 50;
    const error = await rig.store.reserve(rig.agent, much).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: "disk_full", details: { needBytes: much } });
    const { freeBytes } = (error as { details: { freeBytes: number } }).details;
    const most = Math.floor(freeBytes * 0.7);
    const held = await rig.store.reserve(rig.agent, most);
    await expect(rig.store.reserve(rig.agent, most)).rejects.toMatchObject({ code: "disk_full" });
    held.release();
    held.release();
    (await rig.store.reserve(rig.agent, most)).release();
  });
}
