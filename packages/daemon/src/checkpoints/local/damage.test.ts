import { cp, readFile, readdir, rename, stat, writeFile } from "node:fs/promises";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { inspect, promisify } from "node:util";
import type { AgentId } from "@perdure/protocol";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import {
  DISK_BYTES,
  PAGE,
  capture,
  collectPages,
  newAgentId,
  newLayerId,
  sampleDraft,
  samplePage,
  seeded,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { flipBit } from "../../../../../test/fixtures/flip-bit.ts";
import type { CheckpointDraft } from "../../core/ports/checkpoint-store.ts";
import { encodeManifest } from "../signature.ts";
import { WorkPool } from "../work/pool.ts";
import type { DamageReport } from "./background-check.ts";
import type { LocalCheckpointStore } from "./local-checkpoint-store.ts";
import { makeStoreHome } from "./store-home.ts";
import type { StoreHome } from "./store-home.ts";

const run = promisify(execFile);
const pool = new WorkPool();
afterAll(() => pool.close());
let home: StoreHome;
let store: LocalCheckpointStore;
let agent: AgentId;
let draft: CheckpointDraft;
const draw = seeded(11);
const devices = new Uint8Array(Buffer.from("device state ".repeat(1000)));
const quiet = (): void => undefined;

/** One checkpoint with every part: a layer, an own base, and pages over it. */
beforeEach(async () => {
  home = await makeStoreHome(pool);
  store = await home.open({ hostBootId: "boot-1" });
  agent = newAgentId();
  await store.createAgent(agent);
  draft = await writeWhole(agent);
});
afterEach(() => home.dispose());

async function writeWhole(of: AgentId): Promise<CheckpointDraft> {
  const layer = newLayerId();
  await store.createLayer(of, layer, DISK_BYTES);
  const first = sampleDraft(of, { layers: [layer] });
  const pages = new Map(Array.from({ length: 300 }, (_, i) => [i * 5, samplePage(draw)]));
  const base = await home.base();
  await store.write(first, { base, pages: capture(pages), devices, ownBase: true }, quiet);
  const own = (await store.open(of, first.checkpoint)).state?.base ?? base;
  const second = sampleDraft(of, { layers: [layer], parent: first.checkpoint });
  const more = new Map(Array.from({ length: 200 }, (_, i) => [i * 7, samplePage(draw)]));
  await store.write(second, { base: own, pages: capture(more), devices, ownBase: false }, quiet);
  await store.collect(of, [second.checkpoint], []);
  return second;
}

/** Flips a bit and puts the time of the last change back: damage by the disk, which nothing announces. */
async function flipBitSilently(path: string, bit: number): Promise<void> {
  const { mtimeNs } = await stat(path, { bigint: true });
  await flipBit(path, bit);
  const nanoseconds = String(mtimeNs % 1_000_000_000n).padStart(9, "0");
  await run("touch", ["-m", "-d", `@${mtimeNs / 1_000_000_000n}.${nanoseconds}`, path]);
  expect((await stat(path, { bigint: true })).mtimeNs).toBe(mtimeNs);
}

const asError = (caught: unknown): Error => caught as Error;

async function failure(of: LocalCheckpointStore = store): Promise<Record<string, unknown>> {
  try {
    await collectPages(await of.open(agent, draft.checkpoint));
  } catch (error) {
    const { code, details } = error as { code: string; details: Record<string, unknown> };
    return { code, ...details };
  }
  return { code: "none" };
}

/** Bits spread over a file, its first and last among them. */
async function someBits(path: string, count: number): Promise<number[]> {
  const bits = (await stat(path)).size * 8;
  return [0, bits - 1, ...Array.from({ length: count }, () => draw(bits))];
}

const small = [
  ["manifest.json", "checkpoint_signature", "manifest", "signature"],
  ["page-map", "checkpoint_digest_mismatch", "page-map", "digest"],
  ["devices", "checkpoint_digest_mismatch", "devices", "digest"],
] as const;

for (const [name, code, part, check] of small) {
  test(`C16 a flipped bit in ${name} is found by the ${check} check before anything is handed out`, async () => {
    const path = join(home.folder(agent).checkpoint(draft.checkpoint), name);
    for (const bit of await someBits(path, 60)) {
      await flipBit(path, bit);
      await expect(store.open(agent, draft.checkpoint)).rejects.toMatchObject({
        code,
        details: { part, check },
      });
      await flipBit(path, bit);
    }
    expect(await failure()).toEqual({ code: "none" });
  });
}

test("C16 a flipped bit in a pack is found by the chunk's authentication before its pages are handed out", async () => {
  const folder = home.folder(agent).packs;
  const names = await readdir(folder);
  expect(names).toHaveLength(1);
  const path = join(folder, names[0] ?? "");
  for (const bit of await someBits(path, 60)) {
    await flipBit(path, bit);
    expect(await failure()).toEqual({
      code: "checkpoint_digest_mismatch",
      part: "pack",
      check: "authentication",
    });
    await flipBit(path, bit);
  }
  expect(await failure()).toEqual({ code: "none" });
});

test("C16 a pack that is shorter, longer or gone is found before anything is handed out", async () => {
  const folder = home.folder(agent).packs;
  const path = join(folder, (await readdir(folder))[0] ?? "");
  const bytes = await readFile(path);
  const found = (check: string): Record<string, unknown> => ({
    code: "checkpoint_digest_mismatch",
    part: "pack",
    check,
  });
  await writeFile(path, bytes.subarray(1));
  expect(await failure()).toEqual(found("size"));
  await writeFile(path, Buffer.concat([bytes, Buffer.alloc(1)]));
  expect(await failure()).toEqual(found("size"));
  await writeFile(path, bytes);
  expect(await failure()).toEqual({ code: "none" });
});

const large = [
  ["layer", (): string => store.layerPath(agent, draft.disk.layers[0] ?? newLayerId())],
  ["base", async (): Promise<string> => await ownBasePath()],
] as const;

async function ownBasePath(): Promise<string> {
  const folder = home.folder(agent).bases;
  return join(folder, (await readdir(folder))[0] ?? "");
}

for (const [part, find] of large) {
  test(`C16 a flipped bit in a ${part} is found by its digest because its identity changed`, async () => {
    const path = await find();
    expect(await failure()).toEqual({ code: "none" });
    const bit = draw(((await stat(path)).size - 1) * 8);
    await flipBit(path, bit);
    const found = { code: "checkpoint_digest_mismatch", part, check: "digest" };
    expect(await failure()).toEqual(found);
    // Remembered, and seen again by a daemon that starts now.
    expect(await failure()).toEqual(found);
    expect(await failure(await home.open({ hostBootId: "boot-1" }))).toEqual(found);
    await flipBit(path, bit);
    expect(await failure()).toEqual({ code: "none" });
  });

  test(`C16 a bit that flips in a ${part} unannounced is found by the background check of the next host boot`, async () => {
    const path = await find();
    const bit = draw(((await stat(path)).size - 1) * 8);
    await flipBitSilently(path, bit);
    const checks: (() => Promise<void>)[] = [];
    const reports: DamageReport[] = [];
    const later = await home.open({
      hostBootId: "boot-2",
      verifyInBackground: (check) => void checks.push(check),
      onDamage: (report) => void reports.push(report),
    });
    expect(await failure(later)).toEqual({ code: "none" });
    expect(checks.length).toBe(2);
    for (const check of checks) await check();
    expect(reports).toMatchObject([{ owner: agent, path, damage: { part, check: "digest" } }]);
    expect(await failure(later)).toEqual({
      code: "checkpoint_digest_mismatch",
      part,
      check: "digest",
    });
  });
}

test("a base and a layer are checked in the background once per host boot", async () => {
  const checks: (() => Promise<void>)[] = [];
  const openAgain = (): Promise<LocalCheckpointStore> =>
    home.open({
      hostBootId: "boot-2",
      verifyInBackground: (check) => void checks.push(check),
      onDamage: () => expect.unreachable(),
    });
  const later = await openAgain();
  await later.open(agent, draft.checkpoint);
  await later.open(agent, draft.checkpoint);
  expect(checks).toHaveLength(2);
  for (const check of checks.splice(0)) await check();
  await later.open(agent, draft.checkpoint);
  await (await openAgain()).open(agent, draft.checkpoint);
  expect(checks).toHaveLength(0);
});

test("a record of what was verified that a crash tore apart is done without", async () => {
  await writeFile(home.folder(agent).verified, '{"layer/');
  const again = await home.open();
  expect(await failure(again)).toEqual({ code: "none" });
});

test("an agent that lives on heals a damaged pack at its next checkpoint", async () => {
  const folder = home.folder(agent).packs;
  const path = join(folder, (await readdir(folder))[0] ?? "");
  const opened = await store.open(agent, draft.checkpoint);
  const pages = await collectPages(opened);
  await flipBit(path, 100);
  expect(await failure()).toMatchObject({ part: "pack" });
  const next = sampleDraft(agent, { parent: draft.checkpoint, layers: draft.disk.layers });
  const base = opened.state?.base ?? { kind: "zero" };
  await store.write(next, { base, pages: capture(pages), devices, ownBase: false }, quiet);
  expect(await collectPages(await store.open(agent, next.checkpoint))).toEqual(pages);
});

test("a layer that is known to be damaged is not taken for right by the next checkpoint", async () => {
  await flipBit(store.layerPath(agent, draft.disk.layers[0] ?? newLayerId()), 999);
  const next = sampleDraft(agent, { parent: draft.checkpoint, layers: draft.disk.layers });
  await expect(store.write(next, null, quiet)).rejects.toMatchObject({
    code: "checkpoint_digest_mismatch",
    details: { part: "layer" },
  });
});

test("a checkpoint that is moved to another agent does not open, not even with a manifest signed for it", async () => {
  const other = newAgentId();
  await store.createAgent(other);
  await writeWhole(other);
  const [from, to] = [home.folder(agent), home.folder(other)];
  await cp(from.checkpoint(draft.checkpoint), to.checkpoint(draft.checkpoint), { recursive: true });
  for (const folder of ["packs", "bases", "layers"] as const) {
    await cp(from[folder], to[folder], { recursive: true });
  }
  await expect(store.open(other, draft.checkpoint)).rejects.toMatchObject({
    code: "checkpoint_digest_mismatch",
    details: { part: "manifest", check: "format" },
  });
  const manifest = await store.manifest(agent, draft.checkpoint);
  const forged = encodeManifest(home.keyRing.signing, { ...manifest, agent: other });
  await writeFile(to.manifest(draft.checkpoint), forged.file);
  await expect(store.open(other, draft.checkpoint)).rejects.toMatchObject({
    code: "checkpoint_digest_mismatch",
    details: { part: "page-map", check: "authentication" },
  });
  // The key does not move either: it is wrapped for its agent.
  await rename(from.key, to.key);
  await expect(store.open(other, draft.checkpoint)).rejects.toMatchObject({
    code: "checkpoint_key_missing",
  });
});

test("a manifest signed by another host's key is refused by its signature", async () => {
  const elsewhere = await makeStoreHome(pool);
  try {
    const manifest = await store.manifest(agent, draft.checkpoint);
    const forged = encodeManifest(elsewhere.keyRing.signing, manifest);
    await writeFile(home.folder(agent).manifest(draft.checkpoint), forged.file);
    expect(await failure()).toMatchObject({ code: "checkpoint_signature" });
  } finally {
    await elsewhere.dispose();
  }
});

test("a manifest in another spelling, or with something beside it, is refused as not signed", async () => {
  const path = home.folder(agent).manifest(draft.checkpoint);
  const text = await readFile(path, "utf8");
  const signed = JSON.parse(text) as Record<string, unknown>;
  const spellings = [
    JSON.stringify(signed, null, 1),
    `${text}\n`,
    JSON.stringify({ ...signed, also: 1 }),
    text.replace("sleep", "\\u0073leep"),
    text.replace('"key":', '"key":"","key":'),
  ];
  for (const spelling of spellings) {
    expect(spelling).not.toBe(text);
    await writeFile(path, spelling);
    expect(await failure()).toMatchObject({ code: "checkpoint_signature", check: "signature" });
  }
});

test("a manifest over its size limit is refused before it is parsed", async () => {
  const path = home.folder(agent).manifest(draft.checkpoint);
  await writeFile(path, Buffer.alloc(1024 * 1024 + 1, 0x20));
  expect(await failure()).toMatchObject({ part: "manifest", check: "size" });
});

test("a signed manifest of a version that is not known is refused as such", async () => {
  const manifest = await store.manifest(agent, draft.checkpoint);
  const newer = { ...manifest, version: 2 } as unknown as typeof manifest;
  const { file } = encodeManifest(home.keyRing.signing, newer);
  await writeFile(home.folder(agent).manifest(draft.checkpoint), file);
  expect(await failure()).toMatchObject({ part: "manifest", check: "format" });
});

test("no page, device state or key lies in the agent's files in the clear, and no error quotes one", async () => {
  const secret = Buffer.from("canary-4b1f22c09a-canary-4b1f22c09a");
  const page = new Uint8Array(PAGE);
  page.set(secret);
  const mine = newAgentId();
  await store.createAgent(mine);
  const next = sampleDraft(mine);
  const state = {
    base: { kind: "zero" as const },
    pages: capture(new Map([[9, page]])),
    ownBase: false,
  };
  await store.write(next, { ...state, devices: new Uint8Array(secret) }, quiet);
  const folder = home.folder(mine);
  const key = await home.keyRing.agentKey(folder.key, mine);
  const files = await home.files(mine);
  expect(files.length).toBeGreaterThanOrEqual(5);
  for (const name of files) {
    const bytes = await readFile(join(folder.path, name));
    expect(bytes.includes(secret)).toBe(false);
    expect(bytes.includes(Buffer.from(key))).toBe(false);
  }
  await flipBit(folder.pageMap(next.checkpoint), 3);
  const error = await store.open(mine, next.checkpoint).catch(asError);
  await store.removeAgent(mine);
  const gone = await home.keyRing.agentKey(folder.key, mine).catch(asError);
  const told = inspect([error, gone], { depth: 10 }) + JSON.stringify([error, gone]);
  expect(told).toContain("checkpoint_key_missing");
  for (const form of ["hex", "base64", "latin1"] as const) {
    expect(told).not.toContain(Buffer.from(key).toString(form));
    expect(told).not.toContain(secret.toString(form));
  }
});

test("a destroyed key makes every checkpoint unreadable although its files are there", async () => {
  await home.keyRing.destroyAgentKey(home.folder(agent).key);
  expect(await failure()).toMatchObject({ code: "checkpoint_key_missing" });
  await expect(store.write(sampleDraft(agent), null, quiet)).rejects.toMatchObject({
    code: "checkpoint_key_missing",
  });
});
