import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, statfs, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import {
  DISK_BYTES,
  PAGE,
  capture,
  collectPages,
  newAgentId,
  newLayerId,
  sampleDraft,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { openKeyRing } from "../key-ring.ts";
import { WorkPool } from "../work/pool.ts";
import { StoreHome } from "./store-home.ts";

const run = promisify(execFile);
const pool = new WorkPool();
afterAll(() => pool.close());
const devices = new Uint8Array(5000).fill(1);
const quiet = (): void => undefined;

/** A file system of its own, because only root may make a small one. */
async function onSmallDisk(
  mebibytes: number,
  work: (home: string) => Promise<void>,
): Promise<void> {
  const home = await mkdtemp(join(tmpdir(), "perdure-small-"));
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${mebibytes}m`, "tmpfs", home]);
    try {
      await work(home);
    } finally {
      await run("umount", [home]);
    }
  } finally {
    await rm(home, { recursive: true });
  }
}

const canMount = process.getuid?.() === 0;
if (!canMount) console.warn("Skipped: a small file system can be mounted by root only");

function noise(pages: number, from = 0): Map<number, Uint8Array> {
  const bytes = new Uint8Array(pages * PAGE);
  for (let i = 0; i < bytes.length; i += 65536) {
    crypto.getRandomValues(bytes.subarray(i, Math.min(i + 65536, bytes.length)));
  }
  return new Map(
    Array.from({ length: pages }, (_, i) => [from + i, bytes.subarray(i * PAGE, (i + 1) * PAGE)]),
  );
}

for (const ownBase of [false, true]) {
  test.skipIf(!canMount)(
    `C15 a full disk during a write names the bytes needed, leaves nothing, and blocks no later write (own base: ${ownBase})`,
    async () => {
      await onSmallDisk(24, async (path) => {
        const home = new StoreHome(path, await openKeyRing(path), pool);
        const store = await home.open();
        const agent = newAgentId();
        await store.createAgent(agent);
        const first = sampleDraft(agent);
        const old = noise(1000);
        const base = { kind: "zero" } as const;
        const state = (pages: Map<number, Uint8Array>) => ({
          base,
          pages: capture(pages),
          devices,
          ownBase,
        });
        await store.write(first, { ...state(old), ownBase: false }, quiet);
        const before = await home.files(agent);
        const free = await freeBytes(path);
        // More than is with the workers at once: what was not yet captured is needed as well.
        const much = noise(24_000);
        const second = sampleDraft(agent, { parent: first.checkpoint });
        const error = await store
          .write(second, state(much), quiet)
          .catch((caught: unknown) => caught as { details: Record<string, number> });
        expect(error).toMatchObject({ code: "disk_full" });
        const { needBytes, freeBytes: told } = (error as { details: Record<string, number> })
          .details;
        expect(needBytes).toBeGreaterThanOrEqual(24_000 * PAGE);
        expect(told).toBeGreaterThan(0);
        expect(await home.files(agent)).toEqual(before);
        expect(await freeBytes(path)).toBe(free);
        expect(await collectPages(await store.open(agent, first.checkpoint))).toEqual(old);
        const third = sampleDraft(agent, { parent: first.checkpoint });
        const few = noise(2000);
        await store.write(third, state(few), quiet);
        const opened = await store.open(agent, third.checkpoint);
        if (!ownBase) expect(await collectPages(opened)).toEqual(few);
        await store.close();
      });
    },
  );
}

test.skipIf(!canMount)("C15 a layer that finds no room leaves nothing", async () => {
  await onSmallDisk(4, async (path) => {
    const home = new StoreHome(path, await openKeyRing(path), pool);
    const store = await home.open();
    const agent = newAgentId();
    await store.createAgent(agent);
    const layer = newLayerId();
    await store.createLayer(agent, layer, DISK_BYTES);
    const before = await home.files(agent);
    await writeFile(join(path, "filler"), Buffer.alloc(8 * 1024 * 1024)).catch(() => undefined);
    expect(await freeBytes(path)).toBe(0);
    await expect(store.createLayer(agent, newLayerId(), DISK_BYTES)).rejects.toMatchObject({
      code: "disk_full",
      details: { freeBytes: 0 },
    });
    expect(await home.files(agent)).toEqual(before);
    await rm(join(path, "filler"));
    await store.createLayer(agent, newLayerId(), DISK_BYTES);
    expect(await readFile(store.layerPath(agent, layer))).not.toHaveLength(0);
  });
});

async function freeBytes(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}
