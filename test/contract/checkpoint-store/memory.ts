/** What a checkpoint holds: pages, devices, and the words of its draft. */
import { digestOf, type CanonicalValue } from "@perdure/protocol";
import { expect, it } from "vitest";
import {
  PAGE,
  PAGES,
  collectPages,
  differingPage,
  newAgentId,
  sampleBase,
  sampleDraft,
  samplePage,
} from "../checkpoint-store-sample.ts";
import { devices, quiet, zero, type CheckpointStoreRig } from "./rig.ts";

export function memoryTests(rig: CheckpointStoreRig): void {
  it("gives back pages, devices and every word of the draft", async () => {
    const pages = rig.somePages(3000);
    const draft = sampleDraft(rig.agent, { name: "before", parent: null });
    const published = await rig.store.write(draft, rig.state(pages), quiet);
    const { manifest, digest, state: found } = await rig.store.open(rig.agent, draft.checkpoint);
    expect(found?.devices).toEqual(devices);
    expect(found?.base).toEqual(zero);
    const { disk, ...words } = draft;
    expect(manifest).toMatchObject({ ...words, disk: { ...disk, layers: [] } });
    expect(published).toMatchObject({ manifest, digest });
    expect(digest).toBe(digestOf(manifest as unknown as CanonicalValue));
    expect(await rig.store.manifest(rig.agent, draft.checkpoint)).toEqual(manifest);
    expect(manifest.memory).toMatchObject({ storedPages: 3000, zeroPages: 0 });
    const again = await rig.store.open(rig.agent, draft.checkpoint);
    expect(differingPage(await collectPages(again), pages)).toBeNull();
  });

  it("keeps a disk alone where there is no memory", async () => {
    const draft = sampleDraft(rig.agent, { kind: "stop" });
    await rig.store.write(draft, null, quiet);
    const found = await rig.store.open(rig.agent, draft.checkpoint);
    expect(found.state).toBeNull();
    expect(found.manifest.memory).toBeUndefined();
  });

  it("holds the first and the last page, and a capture of nothing", async () => {
    const ends = new Map([0, PAGES - 1].map((index) => [index, samplePage(rig.draw)]));
    const first = sampleDraft(rig.agent);
    await rig.store.write(first, rig.state(ends), quiet);
    expect(
      differingPage(await collectPages(await rig.store.open(rig.agent, first.checkpoint)), ends),
    ).toBeNull();
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    await rig.store.write(second, rig.state(new Map()), quiet);
    expect(
      differingPage(
        await collectPages(await rig.store.open(rig.agent, second.checkpoint)),
        new Map(),
      ),
    ).toBeNull();
  });

  it("records a zeroed page over a base that is not zero, and forgets a page that went back to it", async () => {
    const bytes = sampleBase(1);
    const base = await rig.opened.templateBase(bytes);
    const original = (index: number): Uint8Array =>
      bytes.subarray(index * PAGE, (index + 1) * PAGE);
    const pages = new Map([10, 11, 12, 5000].map((index) => [index, samplePage(rig.draw)]));
    const first = sampleDraft(rig.agent);
    await rig.store.write(first, rig.state(pages, base), quiet);
    pages.set(11, original(11)).set(12, new Uint8Array(PAGE)).set(5000, new Uint8Array(PAGE));
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    const { manifest } = await rig.store.write(second, rig.state(pages, base), quiet);
    expect(manifest.memory).toMatchObject({ storedPages: 1, zeroPages: 1 });
    const found = await collectPages(await rig.store.open(rig.agent, second.checkpoint));
    expect([...found.keys()]).toEqual([10, 12]);
    expect(found.get(12)).toEqual(new Uint8Array(PAGE));
  });

  it("does not find what is not there", async () => {
    const { checkpoint } = sampleDraft(rig.agent);
    const missing = { code: "checkpoint_not_found" };
    await expect(rig.store.open(rig.agent, checkpoint)).rejects.toMatchObject(missing);
    await expect(rig.store.manifest(rig.agent, checkpoint)).rejects.toMatchObject(missing);
    await expect(rig.store.open(newAgentId(), checkpoint)).rejects.toMatchObject(missing);
  });
}
