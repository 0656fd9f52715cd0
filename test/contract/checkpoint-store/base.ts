/** A base of the agent's own. */
import { stat } from "node:fs/promises";
import { expect, it } from "vitest";
import {
  PAGE,
  PAGES,
  newAgentId,
  sampleBase,
  sampleDraft,
  samplePage,
  wholeMemory,
} from "../checkpoint-store-sample.ts";
import { quiet, zero, type CheckpointStoreRig } from "./rig.ts";

export function baseTests(rig: CheckpointStoreRig): void {
  it("writes a base of the agent's own, on which later checkpoints stand", async () => {
    const bytes = sampleBase(2);
    const base = await rig.opened.templateBase(bytes);
    const pages = rig.somePages(3000);
    pages.set(30, new Uint8Array(PAGE)).set(PAGES - 1, samplePage(rig.draw));
    const first = sampleDraft(rig.agent);
    const { manifest } = await rig.store.write(first, rig.state(pages, base, true), quiet);
    expect(manifest.memory).toMatchObject({ base: { kind: "own" }, packs: [], storedPages: 0 });
    for (const [index, page] of pages) bytes.set(page, index * PAGE);
    const found = await rig.store.open(rig.agent, first.checkpoint);
    const own = found.state?.base ?? zero;
    expect(bytes.equals(await wholeMemory(found))).toBe(true);
    if (own.kind !== "own") throw new Error("The base is not the agent's own");
    expect(own.path).toBe(rig.store.ownBasePath(rig.agent, own.digest));
    expect((await stat(own.path)).blocks * 512).toBeLessThan(32 * 1024 * 1024);
    const change = new Map([[77, samplePage(rig.draw)]]);
    bytes.set(change.get(77) ?? [], 77 * PAGE);
    const second = sampleDraft(rig.agent, { parent: first.checkpoint });
    await rig.store.write(second, rig.state(change, own), quiet);
    await rig.store.collect(rig.agent, [second.checkpoint], []);
    expect(bytes.equals(await rig.memoryOf(second.checkpoint))).toBe(true);
  });

  it("lets a fork stand on the own base of its origin after the origin is gone", async () => {
    const first = sampleDraft(rig.agent);
    await rig.store.write(first, rig.state(rig.somePages(50), zero, true), quiet);
    const origin = await rig.store.open(rig.agent, first.checkpoint);
    const memory = await wholeMemory(origin);
    const fork = newAgentId();
    await rig.store.createAgent(fork, "default");
    const base = origin.state?.base;
    if (base?.kind !== "own") throw new Error("The base is not the agent's own");
    const linked = { ...base, bytes: PAGES * PAGE };
    await rig.store.linkBase(fork, linked);
    await rig.store.linkBase(fork, linked);
    await rig.store.removeAgent(rig.agent);
    // A machine has it mapped, and no checkpoint of the fork names it yet.
    await rig.store.collect(fork, [], [], [base.digest]);
    const draft = sampleDraft(fork);
    const own = { ...base, path: rig.store.ownBasePath(fork, base.digest) };
    await rig.store.write(draft, rig.state(new Map(), own), quiet);
    await rig.store.collect(fork, [draft.checkpoint], []);
    expect(memory.equals(await wholeMemory(await rig.store.open(fork, draft.checkpoint)))).toBe(
      true,
    );
  });
}
