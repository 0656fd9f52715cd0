/** What a verification says of a checkpoint that is whole, and of one that is not there. */
import type { VerifiedPart } from "@perdure/protocol";
import { expect, it } from "vitest";
import { DISK_BYTES, newLayerId, sampleBase, sampleDraft } from "../checkpoint-store-sample.ts";
import { quiet, type CheckpointStoreRig } from "./rig.ts";

export function verifyTests(rig: CheckpointStoreRig): void {
  const verification = (digest: string) => ({
    digest: digest as Parameters<typeof rig.store.verify>[2]["digest"],
    signal: new AbortController().signal,
    known: new Map<string, VerifiedPart>(),
    onProgress: () => undefined,
  });

  it("C16 reads all that a checkpoint names and finds it good, beside writes and collections", async () => {
    const layer = newLayerId();
    await rig.store.createLayer(rig.agent, layer, DISK_BYTES);
    const base = await rig.opened.templateBase(sampleBase(4));
    const draft = sampleDraft(rig.agent, { layers: [layer] });
    const pages = rig.somePages(3000);
    const { digest } = await rig.store.write(draft, rig.state(pages, base), quiet);
    const verifying = rig.store.verify(rig.agent, draft.checkpoint, verification(digest));
    const next = sampleDraft(rig.agent, { layers: [layer], parent: draft.checkpoint });
    await rig.store.write(next, rig.state(pages, base), quiet);
    await rig.store.collect(rig.agent, [draft.checkpoint, next.checkpoint], []);
    const parts = await verifying;
    const kinds = new Set(parts.map(({ part }) => part));
    for (const part of ["manifest", "devices", "pack", "base", "layer"] as const) {
      expect(kinds).toContain(part);
    }
    expect(parts.filter(({ verdict }) => verdict !== "good")).toEqual([]);
  });

  it("C16 tells a checkpoint whose files are gone by its manifest", async () => {
    const draft = sampleDraft(rig.agent);
    const { digest } = await rig.store.write(draft, rig.state(rig.somePages(5)), quiet);
    await rig.store.collect(rig.agent, [], []);
    const parts = await rig.store.verify(rig.agent, draft.checkpoint, verification(digest));
    expect(parts).toMatchObject([{ part: "manifest", verdict: "damaged", check: "presence" }]);
  });
}
