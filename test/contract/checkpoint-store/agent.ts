/** Agents: made, listed, removed, and written for at once. */
import { expect, it } from "vitest";
import {
  collectPages,
  differingPage,
  newAgentId,
  sampleDraft,
} from "../checkpoint-store-sample.ts";
import { quiet, type CheckpointStoreRig } from "./rig.ts";

export function agentTests(rig: CheckpointStoreRig): void {
  it("writes for several agents at once", async () => {
    const agents = Array.from({ length: 6 }, newAgentId);
    const written = await Promise.all(
      agents.map(async (id, i) => {
        await rig.store.createAgent(id, "default");
        const pages = rig.somePages(700, i);
        const draft = sampleDraft(id);
        await rig.store.write(draft, rig.state(pages), quiet);
        return { id, pages, draft };
      }),
    );
    for (const { id, pages, draft } of written) {
      expect(
        differingPage(await collectPages(await rig.store.open(id, draft.checkpoint)), pages),
      ).toBeNull();
    }
  });

  it("makes and removes agents idempotently and lists those that have files", async () => {
    await rig.store.createAgent(rig.agent, "default");
    const draft = sampleDraft(rig.agent);
    await rig.store.write(draft, rig.state(rig.somePages(5)), quiet);
    await rig.store.createAgent(rig.agent, "default");
    await rig.store.open(rig.agent, draft.checkpoint);
    expect(await rig.store.listAgents()).toEqual([rig.agent]);
    await rig.store.removeAgent(rig.agent);
    await rig.store.removeAgent(rig.agent);
    expect(await rig.store.listAgents()).toEqual([]);
    expect(await rig.store.storedBytes(rig.agent)).toBe(0);
  });
}
