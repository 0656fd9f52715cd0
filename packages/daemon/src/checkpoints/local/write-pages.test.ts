import { readFile, stat } from "node:fs/promises";
import { afterAll, expect, test } from "vitest";
import {
  PAGES,
  capture,
  newAgentId,
  sampleDraft,
  samplePage,
  seeded,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { decodePageMap, pageMapBytesMax } from "../page-map-file.ts";
import { unseal } from "../sealed.ts";
import { WorkPool } from "../work/pool.ts";
import { makeStoreHome } from "./store-home.ts";

const pool = new WorkPool();
afterAll(() => pool.close());

test("chunks that several workers append to a pack share neither a nonce nor a byte, and fill it", async () => {
  const home = await makeStoreHome(pool);
  try {
    const store = await home.open();
    const agent = newAgentId();
    await store.createAgent(agent);
    const draw = seeded(6);
    const pages = new Map(Array.from({ length: 4000 }, (_, i) => [i * 2, samplePage(draw)]));
    const draft = sampleDraft(agent);
    const { manifest } = await store.write(
      draft,
      {
        base: { kind: "zero" },
        pages: capture(pages, 70),
        devices: new Uint8Array(9),
        ownBase: false,
      },
      () => undefined,
    );
    const folder = home.folder(agent);
    const key = await home.keyRing.agentKey(folder.key, agent);
    const label = { part: "page-map", agent, checkpoint: draft.checkpoint } as const;
    const file = await readFile(folder.pageMap(draft.checkpoint));
    const { chunks } = decodePageMap(unseal(key, label, file, pageMapBytesMax(PAGES)), PAGES);
    expect(chunks.count).toBeGreaterThan(100);
    expect(new Set(chunks.number).size).toBe(chunks.count);
    const spans = [...chunks.offset].map((offset, i) => ({
      offset,
      length: chunks.length[i] ?? 0,
    }));
    spans.sort((a, b) => a.offset - b.offset);
    let end = 0;
    for (const { offset, length } of spans) {
      expect(offset).toBe(end);
      end = offset + length;
    }
    const [pack] = manifest.memory?.packs ?? [];
    if (pack === undefined) throw new Error("There is no pack");
    expect(pack.bytes).toBe(end);
    expect((await stat(folder.pack(pack.id))).size).toBe(end);
  } finally {
    await home.dispose();
  }
});
