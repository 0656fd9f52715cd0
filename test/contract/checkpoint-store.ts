/**
 * The suite of port CheckpointStore (packages/daemon/src/core/ports/checkpoint-store.ts): it holds
 * for every implementation. Call it from a test file with a way to open an empty store.
 */
import { readFile, stat, writeFile } from "node:fs/promises";
import { digestOf, type AgentId, type CanonicalValue } from "@perdure/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type {
  CapturedState,
  CheckpointStore,
} from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { MemoryBase } from "../../packages/daemon/src/core/ports/substrate.ts";
import {
  DISK_BYTES,
  PAGE,
  PAGES,
  capture,
  collectPages,
  differingPage,
  newAgentId,
  newLayerId,
  sampleBase,
  sampleDraft,
  samplePage,
  seeded,
  wholeMemory,
} from "./checkpoint-store-sample.ts";

export interface OpenCheckpointStore {
  readonly store: CheckpointStore;
  /** Makes `bytes` the base of a template of tenant `default`. */
  templateBase(bytes: Uint8Array): Promise<MemoryBase & { readonly kind: "template" }>;
  /** A path for a file of the test's own, on the store's file system. */
  path(name: string): string;
  dispose(): Promise<void>;
}

const devices = new Uint8Array(Buffer.from("state of cpu and devices ".repeat(3000)));
const quiet = (): void => undefined;

export function checkpointStoreContract(
  implementation: string,
  open: () => Promise<OpenCheckpointStore>,
): void {
  describe(`CheckpointStore: ${implementation}`, () => {
    let opened: OpenCheckpointStore;
    let store: CheckpointStore;
    let agent: AgentId;
    beforeEach(async () => {
      opened = await open();
      ({ store } = opened);
      agent = newAgentId();
      await store.createAgent(agent, "default");
    });
    afterEach(() => opened.dispose());

    const zero: MemoryBase = { kind: "zero" };
    const state = (
      pages: ReadonlyMap<number, Uint8Array>,
      base: MemoryBase = zero,
      ownBase = false,
    ): CapturedState => ({ base, pages: capture(pages), devices, ownBase });
    const draw = seeded(7);
    const somePages = (count: number, from = 0): Map<number, Uint8Array> =>
      new Map(Array.from({ length: count }, (_, i) => [from + 3 * i, samplePage(draw)]));
    const memoryOf = async (checkpoint: Parameters<CheckpointStore["open"]>[1]): Promise<Buffer> =>
      await wholeMemory(await store.open(agent, checkpoint));

    it("gives back pages, devices and every word of the draft", async () => {
      const pages = somePages(3000);
      const draft = sampleDraft(agent, { name: "before", parent: null });
      const published = await store.write(draft, state(pages), quiet);
      const { manifest, digest, state: found } = await store.open(agent, draft.checkpoint);
      expect(found?.devices).toEqual(devices);
      expect(found?.base).toEqual(zero);
      const { disk, ...words } = draft;
      expect(manifest).toMatchObject({ ...words, disk: { ...disk, layers: [] } });
      expect(published).toMatchObject({ manifest, digest });
      expect(digest).toBe(digestOf(manifest as unknown as CanonicalValue));
      expect(await store.manifest(agent, draft.checkpoint)).toEqual(manifest);
      expect(manifest.memory).toMatchObject({ storedPages: 3000, zeroPages: 0 });
      const again = await store.open(agent, draft.checkpoint);
      expect(differingPage(await collectPages(again), pages)).toBeNull();
    });

    it("keeps a disk alone where there is no memory", async () => {
      const draft = sampleDraft(agent, { kind: "stop" });
      await store.write(draft, null, quiet);
      const found = await store.open(agent, draft.checkpoint);
      expect(found.state).toBeNull();
      expect(found.manifest.memory).toBeUndefined();
    });

    it("holds the first and the last page, and a capture of nothing", async () => {
      const ends = new Map([0, PAGES - 1].map((index) => [index, samplePage(draw)]));
      const first = sampleDraft(agent);
      await store.write(first, state(ends), quiet);
      expect(
        differingPage(await collectPages(await store.open(agent, first.checkpoint)), ends),
      ).toBeNull();
      const second = sampleDraft(agent, { parent: first.checkpoint });
      await store.write(second, state(new Map()), quiet);
      expect(
        differingPage(await collectPages(await store.open(agent, second.checkpoint)), new Map()),
      ).toBeNull();
    });

    it("stores a page that is unchanged since the parent only once", async () => {
      const pages = somePages(2000);
      const first = sampleDraft(agent);
      const before = await store.write(first, state(pages), quiet);
      pages.set(1, samplePage(draw));
      const second = sampleDraft(agent, { parent: first.checkpoint });
      const after = await store.write(second, state(pages), quiet);
      expect(after.addedBytes).toBeLessThan(before.addedBytes / 10);
      expect(after.manifest.memory?.packs).toHaveLength(2);
      expect(
        differingPage(await collectPages(await store.open(agent, second.checkpoint)), pages),
      ).toBeNull();
    });

    it("records a zeroed page over a base that is not zero, and forgets a page that went back to it", async () => {
      const bytes = sampleBase(1);
      const base = await opened.templateBase(bytes);
      const original = (index: number): Uint8Array =>
        bytes.subarray(index * PAGE, (index + 1) * PAGE);
      const pages = new Map([10, 11, 12, 5000].map((index) => [index, samplePage(draw)]));
      const first = sampleDraft(agent);
      await store.write(first, state(pages, base), quiet);
      pages.set(11, original(11)).set(12, new Uint8Array(PAGE)).set(5000, new Uint8Array(PAGE));
      const second = sampleDraft(agent, { parent: first.checkpoint });
      const { manifest } = await store.write(second, state(pages, base), quiet);
      expect(manifest.memory).toMatchObject({ storedPages: 1, zeroPages: 1 });
      const found = await collectPages(await store.open(agent, second.checkpoint));
      expect([...found.keys()]).toEqual([10, 12]);
      expect(found.get(12)).toEqual(new Uint8Array(PAGE));
    });

    it("C1B 50 checkpoints of random writes, zeroings and reversions equal a byte-for-byte image", async () => {
      const seed = 20;
      await lifeOfAnAgent(opened, agent, seed, 50);
    }, 120_000);

    it("refers to at most 8 packs, each at least half alive", async () => {
      const pages = new Map<number, Uint8Array>();
      let parent: ReturnType<typeof sampleDraft> | null = null;
      const stored = new Map<string, number>();
      for (let round = 0; round < 20; round++) {
        for (const [index, page] of somePages(100 + round, round * 400)) pages.set(index, page);
        const draft = sampleDraft(agent, { parent: parent?.checkpoint ?? null });
        const { manifest } = await store.write(draft, state(pages), quiet);
        const packs = manifest.memory?.packs ?? [];
        expect(packs.length).toBeLessThanOrEqual(8);
        for (const { id, bytes } of packs) stored.set(id, bytes);
        expect(
          differingPage(await collectPages(await store.open(agent, draft.checkpoint)), pages),
        ).toBeNull();
        parent = draft;
      }
      expect(stored.size).toBeGreaterThan(8);
      // Every page rewritten: nothing of the old packs is alive.
      for (const index of pages.keys()) pages.set(index, samplePage(draw));
      const last = sampleDraft(agent, { parent: parent?.checkpoint ?? null });
      const { manifest } = await store.write(last, state(pages), quiet);
      expect(manifest.memory?.packs).toHaveLength(1);
    });

    it("stores the rest of a mostly dead pack anew", async () => {
      const pages = somePages(1000);
      const first = sampleDraft(agent);
      await store.write(first, state(pages), quiet);
      [...pages.keys()].slice(0, 600).forEach((index) => pages.set(index, samplePage(draw)));
      const second = sampleDraft(agent, { parent: first.checkpoint });
      const { manifest } = await store.write(second, state(pages), quiet);
      expect(manifest.memory?.packs).toHaveLength(1);
      await store.collect(agent, [second.checkpoint], []);
      expect(
        differingPage(await collectPages(await store.open(agent, second.checkpoint)), pages),
      ).toBeNull();
    });

    it("writes a base of the agent's own, on which later checkpoints stand", async () => {
      const bytes = sampleBase(2);
      const base = await opened.templateBase(bytes);
      const pages = somePages(3000);
      pages.set(30, new Uint8Array(PAGE)).set(PAGES - 1, samplePage(draw));
      const first = sampleDraft(agent);
      const { manifest } = await store.write(first, state(pages, base, true), quiet);
      expect(manifest.memory).toMatchObject({ base: { kind: "own" }, packs: [], storedPages: 0 });
      for (const [index, page] of pages) bytes.set(page, index * PAGE);
      const found = await store.open(agent, first.checkpoint);
      const own = found.state?.base ?? zero;
      expect(bytes.equals(await wholeMemory(found))).toBe(true);
      if (own.kind !== "own") throw new Error("The base is not the agent's own");
      expect(own.path).toBe(store.ownBasePath(agent, own.digest));
      expect((await stat(own.path)).blocks * 512).toBeLessThan(32 * 1024 * 1024);
      const change = new Map([[77, samplePage(draw)]]);
      bytes.set(change.get(77) ?? [], 77 * PAGE);
      const second = sampleDraft(agent, { parent: first.checkpoint });
      await store.write(second, state(change, own), quiet);
      await store.collect(agent, [second.checkpoint], []);
      expect(bytes.equals(await memoryOf(second.checkpoint))).toBe(true);
    });

    it("lets a fork stand on the own base of its origin after the origin is gone", async () => {
      const first = sampleDraft(agent);
      await store.write(first, state(somePages(50), zero, true), quiet);
      const origin = await store.open(agent, first.checkpoint);
      const memory = await wholeMemory(origin);
      const fork = newAgentId();
      await store.createAgent(fork, "default");
      const draft = sampleDraft(fork, { parent: first.checkpoint });
      await store.write(draft, state(new Map(), origin.state?.base ?? zero), quiet);
      await store.removeAgent(agent);
      expect(memory.equals(await wholeMemory(await store.open(fork, draft.checkpoint)))).toBe(true);
    });

    for (const ownBase of [false, true]) {
      it(`leaves nothing of a write that fails at any of its steps, and the older checkpoint whole (own base: ${ownBase})`, async () => {
        const layer = newLayerId();
        await store.createLayer(agent, layer, DISK_BYTES);
        const pages = somePages(500);
        const older = sampleDraft(agent, { layers: [layer] });
        await store.write(older, state(pages), quiet);
        const memory = await memoryOf(older.checkpoint);
        const before = await store.storedBytes(agent);
        const steps: string[] = [];
        const newer = sampleDraft(agent, { parent: older.checkpoint, layers: [layer] });
        for (const [index, page] of somePages(300)) pages.set(index, page);
        const failAfter = async (count: number): Promise<void> => {
          let seen = 0;
          await store.write(newer, state(pages, zero, ownBase), (step) => {
            if (seen++ === count) throw new Error(`killed at ${step}`);
            if (!steps.includes(step)) steps.push(step);
          });
        };
        let failures = 0;
        for (; failures < 20; failures++) {
          const outcome = await failAfter(failures).then(
            () => null,
            (error: unknown) => error,
          );
          if (outcome === null) break;
          expect(outcome).toMatchObject({
            message: expect.stringContaining("killed at") as string,
          });
          await expect(store.open(agent, newer.checkpoint)).rejects.toMatchObject({
            code: "checkpoint_not_found",
          });
          expect(await store.storedBytes(agent)).toBe(before);
          expect(memory.equals(await memoryOf(older.checkpoint))).toBe(true);
        }
        expect(failures).toBe(5);
        expect(steps).toEqual([
          ownBase ? "base-written" : "pack-written",
          "page-map-written",
          "devices-written",
          "layers-synced",
          "manifest-written",
        ]);
        await memoryOf(newer.checkpoint);
      });
    }

    it("leaves nothing of a write whose capture breaks off", async () => {
      const before = await store.storedBytes(agent);
      const draft = sampleDraft(agent);
      const broken = (async function* () {
        yield* capture(somePages(2000));
        throw new Error("the machine is gone");
      })();
      const captured = { base: zero, pages: broken, devices, ownBase: false };
      await expect(store.write(draft, captured, quiet)).rejects.toThrow("the machine is gone");
      expect(await store.storedBytes(agent)).toBe(before);
    });

    it("refuses pages that are out of order or beyond the memory", async () => {
      for (const indexes of [Uint32Array.of(5, 4), Uint32Array.of(0, PAGES)]) {
        const batch = { indexes, bytes: new Uint8Array(2 * PAGE).fill(1) };
        const pages = (async function* () {
          yield await Promise.resolve(batch);
        })();
        const draft = sampleDraft(agent);
        const captured = { base: zero, pages, devices, ownBase: false };
        await expect(store.write(draft, captured, quiet)).rejects.toMatchObject({
          code: "internal",
        });
      }
    });

    it("names the bytes needed and free where room cannot be reserved, and counts what is promised", async () => {
      const much = 2 ** 50;
      const error = await store.reserve(agent, much).catch((caught: unknown) => caught);
      expect(error).toMatchObject({ code: "disk_full", details: { needBytes: much } });
      const { freeBytes } = (error as { details: { freeBytes: number } }).details;
      const most = Math.floor(freeBytes * 0.7);
      const held = await store.reserve(agent, most);
      await expect(store.reserve(agent, most)).rejects.toMatchObject({ code: "disk_full" });
      held.release();
      held.release();
      (await store.reserve(agent, most)).release();
    });

    it("does not find what is not there", async () => {
      const { checkpoint } = sampleDraft(agent);
      const missing = { code: "checkpoint_not_found" };
      await expect(store.open(agent, checkpoint)).rejects.toMatchObject(missing);
      await expect(store.manifest(agent, checkpoint)).rejects.toMatchObject(missing);
      await expect(store.open(newAgentId(), checkpoint)).rejects.toMatchObject(missing);
    });

    it("makes an empty qcow2 layer of the disk's size without a backing file", async () => {
      const layer = newLayerId();
      await store.createLayer(agent, layer, DISK_BYTES);
      const header = await readFile(store.layerPath(agent, layer));
      expect(header.subarray(0, 4)).toEqual(Buffer.from([0x51, 0x46, 0x49, 0xfb]));
      expect(header.readUInt32BE(4)).toBe(3);
      expect(header.readBigUInt64BE(8)).toBe(0n);
      expect(header.readBigUInt64BE(24)).toBe(BigInt(DISK_BYTES));
      await store.removeLayer(agent, layer);
      await store.removeLayer(agent, layer);
      await expect(stat(store.layerPath(agent, layer))).rejects.toMatchObject({ code: "ENOENT" });
    });

    it("links a template's layer without counting it as the agent's", async () => {
      const from = opened.path("template.qcow2");
      await writeFile(from, Buffer.alloc(1024 * 1024, 5));
      const before = await store.storedBytes(agent);
      const layer = newLayerId();
      await store.linkLayer(agent, layer, from);
      await store.linkLayer(agent, layer, from);
      expect(await readFile(store.layerPath(agent, layer))).toEqual(await readFile(from));
      expect(await store.storedBytes(agent)).toBe(before);
      const draft = sampleDraft(agent, { layers: [layer] });
      const { manifest } = await store.write(draft, null, quiet);
      expect(manifest.disk.layers).toMatchObject([{ id: layer, bytes: 1024 * 1024 }]);
    });

    it("records a top layer anew where a cancelled sleep let the VM write on", async () => {
      const layer = newLayerId();
      await store.createLayer(agent, layer, DISK_BYTES);
      const cancelled = sampleDraft(agent, { layers: [layer] });
      const before = await store.write(cancelled, state(new Map()), quiet);
      await writeFile(store.layerPath(agent, layer), Buffer.alloc(300_000, 9));
      const slept = sampleDraft(agent, { layers: [layer] });
      const after = await store.write(slept, state(new Map()), quiet);
      expect(after.manifest.disk.layers).not.toEqual(before.manifest.disk.layers);
      await store.open(agent, slept.checkpoint);
      await expect(store.open(agent, cancelled.checkpoint)).rejects.toMatchObject({
        code: "checkpoint_digest_mismatch",
        details: { part: "layer" },
      });
    });

    it("collects what no kept checkpoint needs, and nothing else", async () => {
      const [low, dead, top, spare] = [newLayerId(), newLayerId(), newLayerId(), newLayerId()];
      for (const layer of [low, dead, top, spare])
        await store.createLayer(agent, layer, DISK_BYTES);
      const pages = somePages(400);
      const named = sampleDraft(agent, { layers: [low] });
      await store.write(named, state(pages), quiet);
      const namedMemory = await memoryOf(named.checkpoint);
      pages.set(2, samplePage(draw));
      const middle = sampleDraft(agent, { parent: named.checkpoint, layers: [low, dead] });
      await store.write(middle, state(pages, zero, true), quiet);
      const newest = sampleDraft(agent, { parent: middle.checkpoint, layers: [low, top] });
      await store.write(newest, state(pages), quiet);
      const newestMemory = await memoryOf(newest.checkpoint);
      const before = await store.storedBytes(agent);
      const freed = await store.collect(agent, [named.checkpoint, newest.checkpoint], [spare]);
      expect(freed).toBeGreaterThan(0);
      expect(await store.storedBytes(agent)).toBe(before - freed);
      expect(await store.collect(agent, [named.checkpoint, newest.checkpoint], [spare])).toBe(0);
      expect(namedMemory.equals(await memoryOf(named.checkpoint))).toBe(true);
      expect(newestMemory.equals(await memoryOf(newest.checkpoint))).toBe(true);
      await expect(store.open(agent, middle.checkpoint)).rejects.toMatchObject({
        code: "checkpoint_not_found",
      });
      await stat(store.layerPath(agent, spare));
      await expect(stat(store.layerPath(agent, dead))).rejects.toMatchObject({ code: "ENOENT" });
    });

    it("collects nothing where a checkpoint to keep cannot be read", async () => {
      const draft = sampleDraft(agent);
      await store.write(draft, state(somePages(20)), quiet);
      const unknown = sampleDraft(agent).checkpoint;
      await expect(store.collect(agent, [unknown], [])).rejects.toMatchObject({
        code: "checkpoint_not_found",
      });
      await store.open(agent, draft.checkpoint);
    });

    it("waits with a collection until a write of the agent has ended", async () => {
      const first = sampleDraft(agent);
      await store.write(first, state(somePages(300)), quiet);
      const second = sampleDraft(agent, { parent: first.checkpoint });
      const pages = somePages(300);
      const writing = store.write(second, state(pages), quiet);
      await store.collect(agent, [first.checkpoint], []);
      await writing;
      await expect(store.open(agent, second.checkpoint)).rejects.toMatchObject({
        code: "checkpoint_not_found",
      });
      await store.open(agent, first.checkpoint);
    });

    it("writes for several agents at once", async () => {
      const agents = Array.from({ length: 6 }, newAgentId);
      const written = await Promise.all(
        agents.map(async (id, i) => {
          await store.createAgent(id, "default");
          const pages = somePages(700, i);
          const draft = sampleDraft(id);
          await store.write(draft, state(pages), quiet);
          return { id, pages, draft };
        }),
      );
      for (const { id, pages, draft } of written) {
        expect(
          differingPage(await collectPages(await store.open(id, draft.checkpoint)), pages),
        ).toBeNull();
      }
    });

    it("takes nothing from a parent of another agent", async () => {
      const other = newAgentId();
      await store.createAgent(other, "default");
      const theirs = sampleDraft(other);
      const pages = somePages(100);
      await store.write(theirs, state(pages), quiet);
      const mine = sampleDraft(agent, { parent: theirs.checkpoint });
      await store.write(mine, state(pages), quiet);
      await store.removeAgent(other);
      expect(
        differingPage(await collectPages(await store.open(agent, mine.checkpoint)), pages),
      ).toBeNull();
    });

    it("makes and removes agents idempotently and lists those that have files", async () => {
      await store.createAgent(agent, "default");
      const draft = sampleDraft(agent);
      await store.write(draft, state(somePages(5)), quiet);
      await store.createAgent(agent, "default");
      await store.open(agent, draft.checkpoint);
      expect(await store.listAgents()).toEqual([agent]);
      await store.removeAgent(agent);
      await store.removeAgent(agent);
      expect(await store.listAgents()).toEqual([]);
      expect(await store.storedBytes(agent)).toBe(0);
    });
  });
}

/**
 * Plays an agent's life against a plain array that knows nothing of the store: pages are written,
 * zeroed, put back to the base's content or rewritten as they were; it sleeps with the last checkpoint as parent,
 * an older one, or none; wakes or goes on; now and then it gets a base of its own.
 */
async function lifeOfAnAgent(
  where: OpenCheckpointStore,
  agent: AgentId,
  seed: number,
  rounds: number,
): Promise<void> {
  const { store } = where;
  const draw = seeded(seed);
  let baseBytes: Buffer = sampleBase(seed);
  let base: MemoryBase = await where.templateBase(baseBytes);
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
