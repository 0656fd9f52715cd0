import { mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Digest } from "@perdure/protocol";
import { afterAll, expect, test } from "vitest";
import { openKeyRing } from "../../packages/daemon/src/checkpoints/key-ring.ts";
import { openLocalCheckpointStore } from "../../packages/daemon/src/checkpoints/local/local-checkpoint-store.ts";
import { openLocalTemplateStore } from "../../packages/daemon/src/checkpoints/local/local-template-store.ts";
import type {
  LocalTemplateStore,
  LocalTemplateStoreOptions,
} from "../../packages/daemon/src/checkpoints/local/local-template-store.ts";
import { WorkPool } from "../../packages/daemon/src/checkpoints/work/pool.ts";
import { createSystemClock } from "../../packages/daemon/src/clock.ts";
import { capture, newAgentId, sampleBase, sampleDraft } from "./checkpoint-store-sample.ts";
import { templateStoreContract } from "./template-store.ts";

const pool = new WorkPool();
afterAll(() => pool.close());

interface LocalFolders {
  readonly home: string;
  readonly images: string;
  open(options?: Partial<LocalTemplateStoreOptions>): Promise<LocalTemplateStore>;
  dispose(): Promise<void>;
}

async function makeFolders(tenantCopies: boolean): Promise<LocalFolders> {
  const folder = await mkdtemp(join(tmpdir(), "perdure-templates-"));
  const [home, images] = [join(folder, "home"), join(folder, "images")];
  return {
    home,
    images,
    open: async (options = {}) =>
      await openLocalTemplateStore({
        home,
        images,
        tenantCopies,
        pool,
        keyRing: await openKeyRing(home),
        clock: createSystemClock(),
        ...options,
      }),
    dispose: () => rm(folder, { recursive: true }),
  };
}

templateStoreContract("local, a base per tenant", () => makeFolders(true));
templateStoreContract("local, one base for all", () => makeFolders(false));

const key = "6a".repeat(32) as Digest;
const { substrate } = sampleDraft(newAgentId());

async function build(store: LocalTemplateStore, seed = 4): Promise<void> {
  await store.build(key, null, async (draft) => {
    await writeFile(draft.basePath, sampleBase(seed));
    return { substrate, devices: new Uint8Array([1, 2, 3]) };
  });
}

async function withFolders(
  tenantCopies: boolean,
  work: (folders: LocalFolders) => Promise<void>,
): Promise<void> {
  const folders = await makeFolders(tenantCopies);
  try {
    await work(folders);
  } finally {
    await folders.dispose();
  }
}

test("tenants have base files of their own where copies are wanted, and share one inode where not", async () => {
  for (const tenantCopies of [true, false]) {
    await withFolders(tenantCopies, async (folders) => {
      const store = await folders.open();
      await build(store);
      const inodes = await Promise.all(
        ["default", "acme"].map(
          async (tenant) => (await stat((await store.open(tenant, key))?.base.path ?? "")).ino,
        ),
      );
      expect(new Set(inodes).size).toBe(tenantCopies ? 2 : 1);
    });
  }
});

test("a tenant's template outlives the images folder and is found by its base's digest", async () => {
  await withFolders(true, async (folders) => {
    const store = await folders.open();
    await build(store);
    const before = await store.open("default", key);
    await rm(folders.images, { recursive: true });
    const later = await folders.open();
    await build(later, 5);
    expect(await later.open("default", key)).toEqual(before);
    expect((await later.open("acme", key))?.base.digest).not.toBe(before?.base.digest);
    const digest = before?.base.digest ?? key;
    expect(await later.findBase("default", digest)).toBe(before?.base.path);
    expect(await later.findBase("acme", digest)).toBeNull();
    expect(await later.findBase("nobody", digest)).toBeNull();
  });
});

test("a tenant's record with a changed bit is refused by its signature", async () => {
  await withFolders(true, async (folders) => {
    const store = await folders.open();
    await build(store);
    await store.open("default", key);
    const path = join(folders.home, "tenants", "default", "templates", key, "record.json");
    const record = await readFile(path);
    for (let byte = 0; byte < record.length; byte += 7) {
      const broken = Buffer.from(record);
      broken[byte] = (broken[byte] ?? 0) ^ 1;
      await writeFile(path, broken);
      await expect(store.open("default", key)).rejects.toMatchObject({
        details: { part: "template" },
      });
    }
    await writeFile(path, record);
    expect(await store.open("default", key)).not.toBeNull();
  });
});

test("a shared template that was damaged is discarded when a tenant takes it over, and built again", async () => {
  for (const tenantCopies of [true, false]) {
    await withFolders(tenantCopies, async (folders) => {
      const store = await folders.open();
      await build(store);
      const path = join(folders.images, "templates", key, "base");
      const bytes = await readFile(path);
      bytes[9000] = (bytes[9000] ?? 0) ^ 1;
      await writeFile(path, bytes);
      expect(await store.open("default", key)).toBeNull();
      const names = await readdir(join(folders.home, "tenants", "default", "templates"));
      expect(names).toEqual([".lock"]);
      await build(store);
      expect(await store.open("default", key)).not.toBeNull();
    });
  }
});

test("C16 a flipped bit in a template's base is found by its digest when a checkpoint that stands on it is opened", async () => {
  await withFolders(true, async (folders) => {
    const templates = await folders.open();
    await build(templates);
    const base = (await templates.open("default", key))?.base ?? { kind: "zero" };
    const store = await openLocalCheckpointStore({
      home: folders.home,
      pool,
      keyRing: await openKeyRing(folders.home),
      clock: createSystemClock(),
      findTemplateBase: (tenant, digest) => templates.findBase(tenant, digest),
    });
    const agent = newAgentId();
    await store.createAgent(agent);
    const draft = sampleDraft(agent);
    const pages = capture(new Map([[3, new Uint8Array(4096).fill(9)]]));
    const state = { base, pages, devices: new Uint8Array(10), ownBase: false };
    await store.write(draft, state, () => undefined);
    expect((await store.open(agent, draft.checkpoint)).state?.base).toEqual(base);
    if (base.kind === "zero") throw new Error("The template has no base");
    const bytes = await readFile(base.path);
    bytes[77] = (bytes[77] ?? 0) ^ 4;
    await writeFile(base.path, bytes);
    const damaged = { code: "checkpoint_digest_mismatch", details: { part: "base" } };
    await expect(store.open(agent, draft.checkpoint)).rejects.toMatchObject(damaged);
    await rm(join(folders.home, "tenants"), { recursive: true });
    await expect(store.open(agent, draft.checkpoint)).rejects.toMatchObject(damaged);
    await store.close();
  });
});

test("a base is checked in the background once per host boot", async () => {
  await withFolders(true, async (folders) => {
    const first = await folders.open({ hostBootId: "boot-1" });
    await build(first);
    await first.open("default", key);
    const checks: (() => Promise<void>)[] = [];
    const options = {
      hostBootId: "boot-2",
      verifyInBackground: (check: () => Promise<void>) => void checks.push(check),
    };
    await (await folders.open(options)).open("default", key);
    expect(checks).toHaveLength(1);
    for (const check of checks.splice(0)) await check();
    await (await folders.open(options)).open("default", key);
    expect(checks).toHaveLength(0);
  });
});

test("a draft that a dead builder left is removed by the next one", async () => {
  await withFolders(true, async (folders) => {
    const store = await folders.open();
    const left = join(folders.images, "templates", `.${key}.0a1b2c`);
    await writeFile(left, "left");
    await build(store);
    const names = await readdir(join(folders.images, "templates"));
    expect(names.sort()).toEqual([`.${key}.lock`, key]);
  });
});
