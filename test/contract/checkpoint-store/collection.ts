/** What is collected: all that no kept checkpoint needs, and nothing else. */
import { stat } from "node:fs/promises";
import { expect, it } from "vitest";
import { DISK_BYTES, newLayerId, sampleDraft, samplePage } from "../checkpoint-store-sample.ts";
import { quiet, zero, type CheckpointStoreRig } from "./rig.ts";

export function collectionTests(rig: CheckpointStoreRig): void {
  it("collects what no kept checkpoint needs, and nothing else", async () => {
    const [low, dead, top, spare] = [newLayerId(), newLayerId(), newLayerId(), newLayerId()];
    for (const layer of [low, dead, top, spare])
      await rig.store.createLayer(rig.agent, layer, DISK_BYTES);
    const pages = rig.somePages(400);
    const named = sampleDraft(rig.agent, { layers: [low] });
    await rig.store.write(named, rig.state(pages), quiet);
    const namedMemory = await rig.memoryOf(named.checkpoint);
    pages.set(2, samplePage(rig.draw));
    const middle = sampleDraft(rig.agent, { parent: named.checkpoint, layers: [low, dead] });
    await rig.store.write(middle, rig.state(pages, zero, true), quiet);
    const newest = sampleDraft(rig.agent, { parent: middle.checkpoint, layers: [low, top] });
    await rig.store.write(newest, rig.state(pages), quiet);
    const newestMemory = await rig.memoryOf(newest.checkpoint);
    const before = await rig.store.storedBytes(rig.agent);
    const freed = await rig.store.collect(
      rig.agent,
      [named.checkpoint, newest.checkpoint],
      [spare],
    );
    expect(freed).toBeGreaterThan(0);
    expect(await rig.store.storedBytes(rig.agent)).toBe(before - freed);
    expect(await rig.store.collect(rig.agent, [named.checkpoint, newest.checkpoint], [spare])).toBe(
      0,
    );
    expect(namedMemory.equals(await rig.memoryOf(named.checkpoint))).toBe(true);
    expect(newestMemory.equals(await rig.memoryOf(newest.checkpoint))).toBe(true);
    await expect(rig.store.open(rig.agent, middle.checkpoint)).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
    await stat(rig.store.layerPath(rig.agent, spare));
    await expect(stat(rig.store.layerPath(rig.agent, dead))).rejects.toMatchObject({
      code: "ENOENT",
    });
  });

  it("collects nothing where a checkpoint to keep cannot be read", async () => {
    const draft = sampleDraft(rig.agent);
    await rig.store.write(draft, rig.state(rig.somePages(20)), quiet);
    const unknown = sampleDraft(rig.agent).checkpoint;
    await expect(rig.store.collect(rig.agent, [unknown], [])).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
    await rig.store.open(rig.agent, draft.checkpoint);
  });

  it("waits with a collection until a write of the agent has ended", async () => {
    const first = sampleDraft(rig.agent);
    await rig.store.write(first, rig.state(rig.somePages(300)), quiet);
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    const pages = rig.somePages(300);
    const writing = rig.store.write(second, rig.state(pages), quiet);
    await rig.store.collect(rig.agent, [first.checkpoint], []);
    await writing;
    await expect(rig.store.open(rig.agent, second.checkpoint)).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
    await rig.store.open(rig.agent, first.checkpoint);
  });
}
