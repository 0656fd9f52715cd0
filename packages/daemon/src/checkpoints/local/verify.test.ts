/** Verification on real files: whichever byte is turned over, its part is named, and no other. */
import { hash } from "node:crypto";
import { readFile, rename, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { AgentId, CheckpointId, Digest, VerifiedPart } from "@perdure/protocol";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import {
  DISK_BYTES,
  PAGES,
  capture,
  newAgentId,
  newLayerId,
  sampleDraft,
  samplePage,
  seeded,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { flipBit } from "../../../../../test/fixtures/flip-bit.ts";
import { encodePageMap } from "../page-map-file.ts";
import { seal } from "../sealed.ts";
import { encodeManifest } from "../signature.ts";
import { WorkPool } from "../work/pool.ts";
import type { LocalCheckpointStore } from "./local-checkpoint-store.ts";
import { makeStoreHome } from "./store-home.ts";
import type { StoreHome } from "./store-home.ts";

const pool = new WorkPool();
afterAll(() => pool.close());
const draw = seeded(23);
const devices = new Uint8Array(Buffer.from("device state ".repeat(500)));

let home: StoreHome;
let store: LocalCheckpointStore;
let agent: AgentId;
let checkpoint: CheckpointId;
let digest: Digest;

/** One checkpoint with every part: a layer, an own base, and two packs over it. */
beforeEach(async () => {
  home = await makeStoreHome(pool);
  store = await home.open();
  agent = newAgentId();
  await store.createAgent(agent);
  const layer = newLayerId();
  await store.createLayer(agent, layer, DISK_BYTES);
  const pages = new Map(Array.from({ length: 300 }, (_, i) => [i * 5, samplePage(draw)]));
  const first = sampleDraft(agent, { layers: [layer] });
  const template = await home.base();
  const state = (ownBase: boolean) => ({ pages: capture(pages), devices, ownBase });
  const quiet = (): void => undefined;
  await store.write(first, { base: template, ...state(true) }, quiet);
  const base = (await store.open(agent, first.checkpoint)).state?.base ?? template;
  let parent = first.checkpoint;
  for (const from of [0, 1]) {
    for (let i = 0; i < 200; i++) pages.set(from + i * 7, samplePage(draw));
    const next = sampleDraft(agent, { layers: [layer], parent });
    digest = (await store.write(next, { base, ...state(false) }, quiet)).digest;
    parent = next.checkpoint;
  }
  checkpoint = parent;
  await store.collect(agent, [checkpoint], []);
});
afterEach(() => home.dispose());

async function verified(signal = new AbortController().signal): Promise<VerifiedPart[]> {
  const verification = { digest, signal, known: new Map(), onProgress: () => undefined };
  return [...(await store.verify(agent, checkpoint, verification))];
}

/** What is damaged, as `part check`. */
async function damage(): Promise<string[]> {
  const bad = (await verified()).filter(({ verdict }) => verdict === "damaged");
  return bad.map(({ part, name, check }) => `${part} ${name === null ? "" : `${name} `}${check}`);
}

async function nameOf(part: VerifiedPart["part"], at = 0): Promise<string> {
  return (await verified()).filter((found) => found.part === part)[at]?.name ?? "";
}

const folder = () => home.folder(agent);
const inCheckpoint = (name: string): string => join(folder().checkpoint(checkpoint), name);

test("C16 every part of a whole checkpoint is good, and nothing in the folder changes", async () => {
  const facts = async (): Promise<string[]> =>
    Promise.all(
      (await home.files(agent)).map(async (name) => {
        const { ino, mtimeNs, size } = await stat(join(folder().path, name), { bigint: true });
        return `${name} ${ino} ${mtimeNs} ${size}`;
      }),
    );
  const before = await facts();
  const parts = await verified();
  expect(parts.map(({ part }) => part)).toEqual([
    "manifest",
    "key",
    "page-map",
    "devices",
    "pack",
    "pack",
    "base",
    "layer",
  ]);
  expect(parts.filter(({ verdict }) => verdict !== "good")).toEqual([]);
  expect(await facts()).toEqual(before);
});

test("C16 a bit that flips anywhere is found in the part that it is in, and only there", async () => {
  const packs = [await nameOf("pack", 0), await nameOf("pack", 1)] as const;
  const base = await nameOf("base");
  const layer = await nameOf("layer");
  const expected: readonly (readonly [path: string, found: string])[] = [
    [inCheckpoint("manifest.json"), "manifest signature"],
    [folder().key, "key presence"],
    [inCheckpoint("page-map"), "page-map digest"],
    [inCheckpoint("devices"), "devices digest"],
    [join(folder().packs, packs[0]), `pack ${packs[0]} authentication`],
    [join(folder().packs, packs[1]), `pack ${packs[1]} authentication`],
    [join(folder().bases, base), `base ${base} digest`],
    [join(folder().layers, `${layer}.qcow2`), `layer ${layer} digest`],
  ];
  for (const [path, found] of expected) {
    const bits = (await stat(path)).size * 8;
    for (const bit of [0, bits - 1, draw(bits)]) {
      await flipBit(path, bit);
      expect(await damage()).toEqual([found]);
      await flipBit(path, bit);
    }
  }
  expect(await damage()).toEqual([]);
}, 120_000);

test("C16 damage in several parts is told of each", async () => {
  const [one, two] = [await nameOf("pack", 0), await nameOf("pack", 1)];
  for (const name of [one, two]) await flipBit(join(folder().packs, name), 77);
  await flipBit(inCheckpoint("devices"), 5);
  expect(await damage()).toEqual([
    "devices digest",
    `pack ${one} authentication`,
    `pack ${two} authentication`,
  ]);
});

test("C16 a file that is gone or longer is found as such", async () => {
  for (const part of ["pack", "base", "layer"] as const) {
    const name = await nameOf(part);
    const path = {
      pack: join(folder().packs, name),
      base: join(folder().bases, name),
      layer: join(folder().layers, `${name}.qcow2`),
    }[part];
    const { size } = await stat(path);
    await truncate(path, size + 1);
    expect(await damage()).toEqual([`${part} ${name} size`]);
    await truncate(path, size);
    await rename(path, `${path}.away`);
    expect(await damage()).toEqual([`${part} ${name} presence`]);
    await rename(`${path}.away`, path);
  }
});

test("C16 a page that is not the one in a map which is signed is found by its digest", async () => {
  const agentKey = await home.keyRing.agentKey(folder().key, agent);
  const manifest = await store.manifest(agent, checkpoint);
  const label = { part: "page-map", agent, checkpoint } as const;
  if (manifest.memory === undefined) throw new Error("There is no memory");
  const map = await pool.run("openMap", {
    path: inCheckpoint("page-map"),
    ...manifest.memory.pageMap,
    agentKey,
    label,
    pageCount: PAGES,
  });
  const last = map.index.length - 1;
  map.hash[last * 16 + 15] = (map.hash[last * 16 + 15] ?? 0) ^ 1;
  const file = seal(agentKey, label, encodePageMap(map));
  await writeFile(inCheckpoint("page-map"), file);
  const pageMap = { digest: hash("sha256", file) as Digest, bytes: file.length };
  const forged = { ...manifest, memory: { ...manifest.memory, pageMap } };
  const signed = encodeManifest(home.keyRing.signing, forged);
  await writeFile(inCheckpoint("manifest.json"), signed.file);
  digest = signed.digest;
  const pack = map.packs[map.chunks.pack[map.chunk[last] ?? 0] ?? 0]?.id;
  expect(await damage()).toEqual([`pack ${pack} digest`]);
});

test("C16 a manifest that this host signed, and that is not the published one, is damage", async () => {
  const manifest = await store.manifest(agent, checkpoint);
  const other = encodeManifest(home.keyRing.signing, { ...manifest, frozen: false });
  await writeFile(inCheckpoint("manifest.json"), other.file);
  expect(await damage()).toEqual(["manifest digest"]);
});

test("verify tells how much of how much was read, reads a shared file once, and ends when asked", async () => {
  const told: (readonly [number, number])[] = [];
  const known = new Map<string, VerifiedPart>();
  const run = (signal: AbortSignal): Promise<readonly VerifiedPart[]> =>
    store.verify(agent, checkpoint, {
      digest,
      signal,
      known,
      onProgress: (read, total) => void told.push([read, total]),
    });
  const stop = new AbortController();
  await run(stop.signal);
  expect(told.length).toBeGreaterThan(5);
  expect(told.map(([read]) => read)).toEqual([...told.map(([read]) => read)].sort((a, b) => a - b));
  const [read, total] = told.at(-1) ?? [0, 1];
  expect(read).toBe(total);
  expect([...known.keys()].map((key) => key.split("/")[0]).sort()).toEqual(["base", "layer"]);
  const layer = join(folder().layers, `${await nameOf("layer")}.qcow2`);
  const bytes = await readFile(layer);
  told.length = 0;
  await run(stop.signal);
  expect(told.at(-1)?.[1]).toBeLessThan(total - bytes.length);
  stop.abort(new Error("the caller left"));
  await expect(run(stop.signal)).rejects.toThrow("the caller left");
});
