/** Packs of pages: what is unchanged is stored once, and what is mostly dead is stored anew. */
import { expect, it } from "vitest";
import {
  collectPages,
  differingPage,
  newAgentId,
  sampleDraft,
  samplePage,
} from "../checkpoint-store-sample.ts";
import { quiet, type CheckpointStoreRig } from "./rig.ts";

export function packTests(rig: CheckpointStoreRig): void {
  it("stores a page that is unchanged since the parent only once", async () => {
    const pages = rig.somePages(2000);
    const first = sampleDraft(rig.agent);
    const before = await rig.store.write(first, rig.state(pages), quiet);
    pages.set(1, samplePage(rig.draw));
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    const after = await rig.store.write(second, rig.state(pages), quiet);
    expect(after.addedBytes).toBeLessThan(before.addedBytes / 10);
    expect(after.manifest.memory?.packs).toHaveLength(2);
    expect(
      differingPage(await collectPages(await rig.store.open(rig.agent, second.checkpoint)), pages),
    ).toBeNull();
  });

  it("refers to at most 8 packs, each at least half alive", async () => {
    const pages = new Map<number, Uint8Array>();
    let parent: ReturnType<typeof sampleDraft> | null = null;
    const stored = new Map<string, number>();
    for (let round = 0; round < 20; round++) {
      for (const [index, page] of rig.somePages(100 + round, round * 400)) pages.set(index, page);
      const draft = sampleDraft(rig.agent, { parent: parent?.checkpoint ?? null });
      const { manifest } = await rig.store.write(draft, rig.state(pages), quiet);
      const packs = manifest.memory?.packs ?? [];
      expect(packs.length).toBeLessThanOrEqual(8);
      for (const { id, bytes } of packs) stored.set(id, bytes);
      expect(
        differingPage(await collectPages(await rig.store.open(rig.agent, draft.checkpoint)), pages),
      ).toBeNull();
      parent = draft;
    }
    expect(stored.size).toBeGreaterThan(8);
    // Every page rewritten: nothing of the old packs is alive.
    for (const index of pages.keys()) pages.set(index, samplePage(rig.draw));
    const last = sampleDraft(rig.agent, { parent: parent?.checkpoint ?? null });
    const { manifest } = await rig.store.write(last, rig.state(pages), quiet);
    expect(manifest.memory?.packs).toHaveLength(1);
  });

  it("stores the rest of a mostly dead pack anew", async () => {
    const pages = rig.somePages(1000);
    const first = sampleDraft(rig.agent);
    await rig.store.write(first, rig.state(pages), quiet);
    [...pages.keys()].slice(0, 600).forEach((index) => pages.set(index, samplePage(rig.draw)));
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    const { manifest } = await rig.store.write(second, rig.state(pages), quiet);
    expect(manifest.memory?.packs).toHaveLength(1);
    await rig.store.collect(rig.agent, [second.checkpoint], []);
    expect(
      differingPage(await collectPages(await rig.store.open(rig.agent, second.checkpoint)), pages),
    ).toBeNull();
  });

  it("takes nothing from a parent of another agent", async () => {
    const other = newAgentId();
    await rig.store.createAgent(other, "default");
    const theirs = sampleDraft(other);
    const pages = rig.somePages(100);
    await rig.store.write(theirs, rig.state(pages), quiet);
    const mine = sampleDraft(rig.agent, { parent: theirs.checkpoint });
    await rig.store.write(mine, rig.state(pages), quiet);
    await rig.store.removeAgent(other);
    expect(
      differingPage(await collectPages(await rig.store.open(rig.agent, mine.checkpoint)), pages),
    ).toBeNull();
  });
}
