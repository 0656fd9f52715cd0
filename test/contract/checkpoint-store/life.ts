/** An agent's life, played against a plain array. */
import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import type { MemoryBase } from "../../../packages/daemon/src/core/ports/substrate.ts";
import {
  PAGE,
  PAGES,
  capture,
  collectPages,
  sampleBase,
  sampleDraft,
  samplePage,
  seeded,
} from "../checkpoint-store-sample.ts";
import { devices, quiet, type CheckpointStoreRig } from "./rig.ts";

export function lifeTests(rig: CheckpointStoreRig): void {
  it("C1B 50 checkpoints of random writes, zeroings and reversions equal a byte-for-byte image", async () => {
    const seed = 20;
    await lifeOfAnAgent(rig, seed, 50);
  }, 120_000);
}

/**
 * Plays an agent's life against a plain array that knows nothing of the store: pages are written,
 * zeroed, put back to the base's content or rewritten as they were; it sleeps with the last checkpoint as parent,
 * an older one, or none; wakes or goes on; now and then it gets a base of its own.
 */
async function lifeOfAnAgent(rig: CheckpointStoreRig, seed: number, rounds: number): Promise<void> {
  const { agent, store } = rig;
  const draw = seeded(seed);
  let baseBytes: Buffer = sampleBase(seed);
  let base: MemoryBase = await rig.opened.templateBase(baseBytes);
  const memory = Buffer.from(baseBytes);
  let touched = new Set<number>();
  const past: ReturnType<typeof sampleDraft>[] = [];
  const page = (bytes: Buffer, index: number): Buffer =>
    bytes.subarray(index * PAGE, (index + 1) * PAGE);
  for (let round = 0; round < rounds; round++) {
    const changes = 50 + draw(600);
    for (let i = 0; i < changes; i++) {
      const index = draw(3) === 0 ? draw(PAGES) : draw(4096);
      const kind = draw(5);
      if (kind <= 1) page(memory, index).set(samplePage(draw));
      else if (kind === 2) page(memory, index).fill(0);
      else if (kind === 3) page(baseBytes, index).copy(page(memory, index));
      else page(memory, draw(4096)).copy(page(memory, index));
      touched.add(index);
    }
    // Most rounds also put many earlier pages back, so that packs die.
    if (draw(4) === 0) {
      for (const index of touched) {
        if (draw(3) > 0) page(baseBytes, index).copy(page(memory, index));
      }
    }
    const parent = draw(8) === 0 ? past[draw(past.length || 1)] : past.at(-1);
    const draft = sampleDraft(agent, { parent: parent?.checkpoint ?? null });
    const captured = new Map(
      [...touched].map((index) => [index, Buffer.from(page(memory, index))]),
    );
    const ownBase = draw(20) === 0;
    await store.write(
      draft,
      { base, pages: capture(captured, 1 + draw(1500)), devices, ownBase },
      quiet,
    );
    past.push(draft);
    const opened = await store.open(agent, draft.checkpoint);
    const pages = await collectPages(opened);
    const onto = opened.state?.base ?? { kind: "zero" };
    const ontoBytes = onto.kind === "own" && ownBase ? await readFile(onto.path) : baseBytes;
    const differs = firstDifference(pages, ontoBytes, memory);
    expect({ seed, round, differs }).toEqual({ seed, round, differs: -1 });
    if (ownBase || draw(2) === 0) {
      // A wake: the next machine's private pages are those that were injected.
      base = onto;
      baseBytes = ontoBytes;
      touched = new Set(pages.keys());
    }
    if (draw(6) === 0) {
      const kept = past.filter((_, i) => i === past.length - 1 || draw(3) === 0);
      past.splice(0, past.length, ...kept);
      await store.collect(
        agent,
        past.map(({ checkpoint }) => checkpoint),
        [],
      );
    }
  }
}

/** The first page in which these pages over this base are not this memory; −1 where there is none. */
function firstDifference(
  pages: ReadonlyMap<number, Uint8Array>,
  base: Buffer,
  memory: Buffer,
): number {
  for (let index = 0; index < PAGES; index++) {
    const [from, to] = [index * PAGE, (index + 1) * PAGE];
    const page = pages.get(index);
    const order =
      page === undefined
        ? memory.compare(base, from, to, from, to)
        : memory.compare(page, 0, PAGE, from, to);
    if (order !== 0) return index;
  }
  return -1;
}
