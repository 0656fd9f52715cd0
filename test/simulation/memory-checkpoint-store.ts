/**
 * Checkpoint store in memory: every byte is kept apart from the machine that wrote it, and verified when
 * it is read. A write that dies leaves its partial files; `collect` takes them away.
 */
import { digestOf, PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId, Digest, LayerId, Manifest } from "@perdure/protocol";
import type {
  CapturedState,
  CheckpointDraft,
  CheckpointStore,
  StoreStep,
  Verification,
} from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type {
  AgentExport,
  AgentImport,
  ExportRequest,
} from "../../packages/daemon/src/core/ports/export-file.ts";
import type { PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import type { MemoryFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import type { FakeHost } from "../../packages/daemon/src/substrate/fake/fake-host.ts";
import type { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import {
  layerPath,
  ownBasePath,
  sha256,
  type AgentFolder,
  type CheckpointFolder,
  type StoredCheckpoint,
} from "./checkpoint-folder.ts";
import { buildManifest } from "./manifest.ts";
import { readImport, writeExport } from "./memory-export.ts";
import { verifyParts } from "./memory-verify.ts";

export interface MemoryCheckpointStoreOptions {
  readonly folder: CheckpointFolder;
  readonly files: MemoryFiles;
  readonly host: FakeHost;
  readonly faults: Faults;
  readonly life: Life;
  /** Told of each write, before its first step; `devices` is null where the disk alone is kept. */
  readonly onWrite: (draft: CheckpointDraft, devices: Uint8Array | null) => void;
}

export class MemoryCheckpointStore implements CheckpointStore {
  readonly #folder: CheckpointFolder;
  readonly #files: MemoryFiles;
  readonly #host: FakeHost;
  readonly #faults: Faults;
  readonly #life: Life;
  readonly #onWrite: MemoryCheckpointStoreOptions["onWrite"];

  constructor({ folder, files, host, faults, life, onWrite }: MemoryCheckpointStoreOptions) {
    this.#folder = folder;
    this.#files = files;
    this.#host = host;
    this.#faults = faults;
    this.#life = life;
    this.#onWrite = onWrite;
    folder.reservedBytes = 0;
  }

  createAgent(agent: AgentId, tenant: string): Promise<void> {
    return this.#do("createAgent", () => {
      if (this.#folder.agents.has(agent)) return;
      this.#folder.agents.set(agent, {
        tenant,
        layers: new Set(),
        checkpoints: new Map(),
        bases: new Set(),
        partial: new Set(),
      });
    });
  }

  removeAgent(agent: AgentId): Promise<void> {
    return this.#do("removeAgent", () => {
      const found = this.#folder.agents.get(agent);
      for (const layer of found?.layers ?? []) this.#files.all.delete(layerPath(agent, layer));
      for (const base of found?.bases ?? []) this.#files.all.delete(ownBasePath(agent, base));
      this.#folder.agents.delete(agent);
    });
  }

  listAgents(): Promise<readonly AgentId[]> {
    return this.#do("listAgents", () => [...this.#folder.agents.keys()]);
  }

  reserve(agent: AgentId, bytes: number): Promise<{ release(): void }> {
    return this.#do("reserve", () => {
      this.#require(agent);
      const free = this.#folder.freeBytes - this.#folder.reservedBytes;
      if (bytes > free) throw diskFull(bytes, free);
      this.#folder.reservedBytes += bytes;
      let held = true;
      return {
        release: () => {
          if (held && !this.#life.over) this.#folder.reservedBytes -= bytes;
          held = false;
        },
      };
    });
  }

  async write(draft: CheckpointDraft, state: CapturedState | null, step: StoreStep) {
    await this.#do("write", () => undefined);
    const folder = this.#require(draft.agent);
    this.#onWrite(draft, state?.devices ?? null);
    const files: string[] = [];
    const durable = async (name: string): Promise<void> => {
      await this.#life.pass();
      files.push(`${draft.checkpoint}/${name}`);
      folder.partial.add(`${draft.checkpoint}/${name}`);
      await this.#do(name, () => undefined);
      await step(name);
      await this.#life.pass();
    };
    try {
      const kept = state === null ? null : await this.#keep(draft, folder, state, durable);
      const layers = draft.disk.layers.map((id) => {
        const bytes = this.#files.read(layerPath(draft.agent, id));
        if (bytes === null) throw new PerdureError("store_failed", `Layer ${id} does not exist`);
        return { id, digest: sha256(bytes), bytes: Math.max(1, bytes.length) };
      });
      await durable("layers-synced");
      const manifest = buildManifest(draft, kept, layers);
      const stored = { manifest, digest: digestOf(manifest) as Digest, state: kept };
      await durable("manifest-written");
      folder.checkpoints.set(draft.checkpoint, stored);
      for (const file of files) folder.partial.delete(file);
      return { manifest, digest: stored.digest, addedBytes: (kept?.pages.size ?? 0) * PAGE_BYTES };
    } catch (error) {
      await this.#life.pass();
      for (const file of files) folder.partial.delete(file);
      throw error;
    }
  }

  open(agent: AgentId, checkpoint: CheckpointId) {
    return this.#do("open", () => {
      const { manifest, digest, state } = this.#verified(agent, checkpoint);
      if (state === null) return { manifest, digest, state: null };
      const { base, devices, pages } = state;
      if (base.kind !== "zero" && this.#files.read(base.path) === null) {
        throw mismatch(checkpoint, "base");
      }
      return {
        manifest,
        digest,
        state: { base, devices, pages: () => verifiedPages(checkpoint, pages) },
      };
    });
  }

  async verify(agent: AgentId, checkpoint: CheckpointId, verification: Verification) {
    await this.#do("verify", () => undefined);
    const parts = { files: this.#files, life: this.#life };
    const folder = this.#folder.agents.get(agent);
    return verifyParts(parts, folder, agent, checkpoint, verification);
  }

  manifest(agent: AgentId, checkpoint: CheckpointId): Promise<Manifest> {
    return this.#do("manifest", () => this.#verified(agent, checkpoint).manifest);
  }

  openExport(request: ExportRequest): Promise<AgentExport> {
    return this.#do("openExport", () =>
      writeExport(this.#files, request, (id) => this.#verified(request.agent.id, id)),
    );
  }

  async openImport(bytes: AsyncIterable<Uint8Array>): Promise<AgentImport> {
    await this.#do("openImport", () => undefined);
    const parts = {
      files: this.#files,
      life: this.#life,
      folderOf: (agent: AgentId) => this.#require(agent),
      point: (operation: string) => this.#do(operation, () => undefined),
    };
    return readImport(parts, bytes);
  }

  syncLayer(): Promise<void> {
    return this.#do("syncLayer", () => undefined);
  }

  createLayer(agent: AgentId, layer: LayerId): Promise<void> {
    return this.#do("createLayer", () => {
      this.#require(agent).layers.add(layer);
      this.#files.write(layerPath(agent, layer), Buffer.from("{}"));
    });
  }

  linkLayer(agent: AgentId, layer: LayerId, fromPath: string): Promise<void> {
    return this.#do("linkLayer", () => {
      const bytes = this.#files.read(fromPath);
      if (bytes === null) throw new PerdureError("store_failed", `"${fromPath}" does not exist`);
      this.#require(agent).layers.add(layer);
      this.#files.write(layerPath(agent, layer), bytes);
    });
  }

  linkBase(agent: AgentId, { digest, path }: { digest: Digest; path: string }): Promise<void> {
    return this.#do("linkBase", () => {
      const bytes = this.#files.read(path);
      if (bytes === null) throw new PerdureError("store_failed", `"${path}" does not exist`);
      this.#require(agent).bases.add(digest);
      this.#files.write(ownBasePath(agent, digest), bytes);
    });
  }

  writeBase(
    agent: AgentId,
    { base, memoryBytes, pages }: Parameters<CheckpointStore["writeBase"]>[1],
  ): ReturnType<CheckpointStore["writeBase"]> {
    return this.#do("writeBase", () => undefined).then(async () => {
      const whole = new Uint8Array(memoryBytes);
      if (base.kind !== "zero") whole.set(this.#files.read(base.path) ?? []);
      for await (const { indexes, bytes } of pages) {
        indexes.forEach((index, i) =>
          whole.set(bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES), index * PAGE_BYTES),
        );
      }
      await this.#life.pass();
      const digest = sha256(whole);
      const path = ownBasePath(agent, digest);
      this.#require(agent).bases.add(digest);
      this.#files.write(path, whole);
      return { kind: "own" as const, digest, path };
    });
  }

  layerBytes(agent: AgentId, layer: LayerId): Promise<number> {
    return Promise.resolve(this.#files.read(layerPath(agent, layer))?.length ?? 0);
  }

  layerPath(agent: AgentId, layer: LayerId): string {
    return layerPath(agent, layer);
  }

  ownBasePath(agent: AgentId, digest: Digest): string {
    return ownBasePath(agent, digest);
  }

  removeLayer(agent: AgentId, layer: LayerId): Promise<void> {
    return this.#do("removeLayer", () => {
      this.#folder.agents.get(agent)?.layers.delete(layer);
      this.#files.all.delete(layerPath(agent, layer));
    });
  }

  collect(
    agent: AgentId,
    keep: readonly CheckpointId[],
    keepLayers: readonly LayerId[],
    keepBases: readonly Digest[] = [],
  ): Promise<number> {
    return this.#do("collect", () => {
      const folder = this.#require(agent);
      const before = storedBytesOf(folder);
      const layers = new Set(keepLayers);
      const bases = new Set<Digest>(keepBases);
      for (const id of keep) {
        const stored = folder.checkpoints.get(id);
        if (stored === undefined) this.#host.violate(`I2: ${id} is to be kept but has no files`);
        for (const layer of stored?.manifest.disk.layers ?? []) layers.add(layer.id);
        if (stored?.state?.base.kind === "own") bases.add(stored.state.base.digest);
      }
      for (const id of folder.checkpoints.keys())
        if (!keep.includes(id)) folder.checkpoints.delete(id);
      for (const layer of folder.layers) {
        if (layers.has(layer)) continue;
        folder.layers.delete(layer);
        this.#files.all.delete(layerPath(agent, layer));
      }
      for (const base of folder.bases) {
        if (bases.has(base)) continue;
        folder.bases.delete(base);
        this.#files.all.delete(ownBasePath(agent, base));
      }
      folder.partial.clear();
      return before - storedBytesOf(folder);
    });
  }

  storedBytes(agent: AgentId): Promise<number> {
    return this.#do("storedBytes", () => storedBytesOf(this.#require(agent)));
  }

  async close(): Promise<void> {
    await this.#life.pass();
  }

  async #keep(
    draft: CheckpointDraft,
    folder: AgentFolder,
    { base, pages, devices, ownBase }: CapturedState,
    durable: (name: string) => Promise<void>,
  ): Promise<NonNullable<StoredCheckpoint["state"]>> {
    const kept = new Map<number, { bytes: Uint8Array; digest: string }>();
    for await (const { indexes, bytes } of pages) {
      indexes.forEach((index, i) => {
        const page = Uint8Array.from(bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES));
        kept.set(index, { bytes: page, digest: sha256(page) });
      });
    }
    const needed = kept.size * PAGE_BYTES;
    if (needed > this.#folder.freeBytes) throw diskFull(needed, this.#folder.freeBytes);
    if (!ownBase) {
      await durable("pack-written");
      await durable("page-map-written");
      await durable("devices-written");
      return { base, pages: kept, devices };
    }
    const whole = new Uint8Array(draft.substrate.shape.memoryBytes);
    if (base.kind !== "zero") whole.set(this.#files.read(base.path) ?? []);
    for (const [index, { bytes }] of kept) whole.set(bytes, index * PAGE_BYTES);
    const digest = sha256(whole);
    const path = ownBasePath(draft.agent, digest);
    this.#files.write(path, whole);
    folder.bases.add(digest);
    await durable("base-written");
    await durable("page-map-written");
    await durable("devices-written");
    return { base: { kind: "own", digest, path }, pages: new Map(), devices };
  }

  #verified(agent: AgentId, checkpoint: CheckpointId): StoredCheckpoint {
    const stored = this.#folder.agents.get(agent)?.checkpoints.get(checkpoint);
    if (stored === undefined) {
      throw new PerdureError("checkpoint_not_found", `Checkpoint ${checkpoint} has no files`);
    }
    const { manifest, state } = stored;
    if (digestOf(manifest) !== stored.digest) throw mismatch(checkpoint, "manifest");
    for (const { id, digest } of manifest.disk.layers) {
      const bytes = this.#files.read(layerPath(agent, id));
      if (bytes === null || sha256(bytes) !== digest) throw mismatch(checkpoint, "layers");
    }
    if (state !== null && sha256(state.devices) !== manifest.devices?.digest) {
      throw mismatch(checkpoint, "devices");
    }
    return stored;
  }

  #require(agent: AgentId): AgentFolder {
    const found = this.#folder.agents.get(agent);
    if (found !== undefined) return found;
    throw new PerdureError("checkpoint_key_missing", `Agent ${agent} has no folder`);
  }

  #do<T>(operation: string, work: () => T): Promise<T> {
    return this.#life.during(async () => {
      await this.#faults.point(`checkpoints.${operation}`);
      await this.#life.pass();
      return work();
    });
  }
}

async function* verifiedPages(
  checkpoint: CheckpointId,
  pages: NonNullable<StoredCheckpoint["state"]>["pages"],
): AsyncIterable<PageBatch> {
  for (const [index, { bytes, digest }] of [...pages].sort(([one], [two]) => one - two)) {
    await Promise.resolve();
    if (sha256(bytes) !== digest) throw mismatch(checkpoint, "packs");
    yield { indexes: Uint32Array.of(index), bytes: Uint8Array.from(bytes) };
  }
}

function diskFull(needed: number, free: number): PerdureError {
  return new PerdureError("disk_full", `${needed} bytes are needed, ${free} are free`, {
    details: { neededBytes: needed, freeBytes: free },
  });
}

function mismatch(checkpoint: CheckpointId, part: string): PerdureError {
  return new PerdureError("checkpoint_digest_mismatch", `${checkpoint}: ${part} changed`, {
    details: { part },
  });
}

function storedBytesOf({ checkpoints, layers }: AgentFolder): number {
  return checkpoints.size * PAGE_BYTES + layers.size;
}
