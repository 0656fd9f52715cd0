import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import {
  capture,
  collectPages,
  newAgentId,
  sampleDraft,
  samplePage,
  seeded,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { WorkPool } from "../work/pool.ts";
import { makeStoreHome } from "./store-home.ts";

const pool = new WorkPool();
afterAll(() => pool.close());

test("a daemon killed at each step of a write leaves the older checkpoint whole and nothing that a collection misses", async () => {
  const home = await makeStoreHome(pool);
  try {
    const store = await home.open();
    const agent = newAgentId();
    await store.createAgent(agent);
    const draw = seeded(1);
    const pages = new Map(Array.from({ length: 100 }, (_, i) => [i * 9, samplePage(draw)]));
    const draft = sampleDraft(agent);
    const state = { base: { kind: "zero" as const }, pages: capture(pages), ownBase: false };
    await store.write(draft, { ...state, devices: new Uint8Array(100) }, () => undefined);
    const before = await home.files(agent);
    const steps = ["pack", "base", "page-map", "devices", "manifest"].map(
      (part) => `${part}-written`,
    );
    await Promise.all(
      [...steps, "layers-synced"].map(async (step) => {
        const script = new URL("./write-forever.ts", import.meta.url).pathname;
        const args = [
          script,
          home.home,
          agent,
          draft.checkpoint,
          step,
          String(step === "base-written"),
        ];
        const child = spawn(process.execPath, args, { stdio: "inherit" });
        expect(await once(child, "exit")).toEqual([null, "SIGKILL"]);
      }),
    );
    await writeFile(join(home.folder(agent).packs, ".half"), "half");
    await writeFile(join(home.folder(agent).path, ".verified.json.0a1b"), "half");
    expect((await home.files(agent)).length).toBeGreaterThan(before.length + 10);
    const again = await home.open();
    expect(await collectPages(await again.open(agent, draft.checkpoint))).toEqual(pages);
    expect(await again.collect(agent, [draft.checkpoint], [])).toBeGreaterThan(0);
    const names = (await home.files(agent)).filter((name) => name !== "verified.json");
    expect(names).toEqual(before);
    expect(await collectPages(await again.open(agent, draft.checkpoint))).toEqual(pages);
  } finally {
    await home.dispose();
  }
});
