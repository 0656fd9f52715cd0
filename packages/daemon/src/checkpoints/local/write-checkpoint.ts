/**
 * Writes one checkpoint. The order is that of I2: everything that the manifest names is durable
 * before the manifest is, and nothing of an attempt that failed stays.
 *
 * Named steps, each after what it names is durable: `pack-written` or `base-written` (neither where
 * no page had to be stored), `page-map-written`, `devices-written`, `layers-synced`, `manifest-written`.
 */
import { mkdir, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { Digest, LayerId, Manifest, MemoryBaseFacts } from "@perdure/protocol";
import type {
  CapturedState,
  CheckpointDraft,
  PublishedCheckpoint,
  StoreStep,
} from "../../core/ports/checkpoint-store.ts";
import type { Parent } from "../classify.ts";
import {
  FOLDER_MODE,
  replaceFile,
  syncFile,
  syncFolder,
  temporaryPath,
  writeNew,
} from "../durable.ts";
import { encodeManifest } from "../signature.ts";
import { diskFull, isDiskFull } from "../store-error.ts";
import type { BuiltMap } from "../work/build-map.ts";
import type { AgentFolder } from "./agent-folder.ts";
import { Attempt } from "./attempt.ts";
import { packsToDrop } from "./live-packs.ts";
import { readManifest } from "./manifest-file.ts";
import { adoptBase, publishBase, writeBaseFile } from "./own-base.ts";
import type { StoreContext } from "./store-context.ts";
import { writePages } from "./write-pages.ts";

/** Manifest, folders and the like, on top of pages and devices. */
const overheadBytes = 64 * 1024;
const zeroDigest = "0".repeat(64) as Digest;

export async function writeCheckpoint(
  context: StoreContext,
  draft: CheckpointDraft,
  state: CapturedState | null,
  step: StoreStep,
): Promise<PublishedCheckpoint> {
  const folder = context.folder(draft.agent);
  const attempt = new Attempt();
  attempt.needBytes = overheadBytes + (state?.devices.length ?? 0);
  try {
    return await new CheckpointWrite(context, folder, attempt, draft, step).run(state);
  } catch (error) {
    await attempt.undo();
    if (!isDiskFull(error) || error instanceof PerdureError) throw error;
    throw await diskFull(folder.path, `write checkpoint "${draft.checkpoint}"`, attempt.needBytes);
  }
}

class CheckpointWrite {
  readonly #context: StoreContext;
  readonly #folder: AgentFolder;
  readonly #attempt: Attempt;
  readonly #draft: CheckpointDraft;
  readonly #step: StoreStep;
  /** Files that were made, layers and the manifest's folder not counted. */
  readonly #files: string[] = [];

  constructor(
    context: StoreContext,
    folder: AgentFolder,
    attempt: Attempt,
    draft: CheckpointDraft,
    step: StoreStep,
  ) {
    this.#context = context;
    this.#folder = folder;
    this.#attempt = attempt;
    this.#draft = draft;
    this.#step = step;
  }

  async run(state: CapturedState | null): Promise<PublishedCheckpoint> {
    const draft = this.#draft;
    const agentKey = await this.#context.keyRing.agentKey(this.#folder.key, draft.agent);
    await this.#makeFolder();
    const parent = await this.#parent();
    const layers = this.#layers(parent);
    layers.catch(() => undefined); // Awaited below, after the memory.
    let saved: Awaited<ReturnType<CheckpointWrite["_state"]>> | undefined;
    try {
      if (state !== null) saved = await this._state(state, agentKey, parent);
    } finally {
      await layers.catch(() => undefined);
    }
    const diskLayers = await layers;
    await this.#step("layers-synced");
    const manifest: Manifest = {
      format: "perdure.checkpoint",
      version: 1,
      checkpoint: draft.checkpoint,
      agent: draft.agent,
      tenant: draft.tenant,
      generation: draft.generation,
      kind: draft.kind,
      ...(draft.name === undefined ? {} : { name: draft.name }),
      parent: draft.parent,
      createdAtMs: draft.createdAtMs,
      frozen: draft.frozen,
      substrate: draft.substrate,
      ...saved,
      disk: { image: draft.disk.image, layers: diskLayers, cleanliness: draft.disk.cleanliness },
    };
    const { file, digest } = encodeManifest(this.#context.keyRing.signing, manifest);
    const path = this.#folder.manifest(draft.checkpoint);
    await replaceFile(path, file);
    await this.#step("manifest-written");
    return { manifest, digest, addedBytes: await this.#attempt.addedBytes([...this.#files, path]) };
  }

  async #makeFolder(): Promise<void> {
    const path = this.#folder.checkpoint(this.#draft.checkpoint);
    const manifest = await stat(this.#folder.manifest(this.#draft.checkpoint)).catch(() => null);
    if (manifest !== null) {
      throw new PerdureError(
        "internal",
        `Cannot write checkpoint "${this.#draft.checkpoint}": it exists already`,
      );
    }
    await rm(path, { recursive: true, force: true }); // Left by a write that died.
    this.#attempt.owns(path);
    await mkdir(path, { mode: FOLDER_MODE });
    await syncFolder(this.#folder.checkpoints);
  }

  /** The parent's manifest where it is of this agent and whole; a checkpoint needs none. */
  async #parent(): Promise<Manifest | null> {
    const { parent, agent } = this.#draft;
    if (parent === null) return null;
    const read = await readManifest(this.#context, agent, parent).catch(() => null);
    return read?.manifest ?? null;
  }

  /** Memory and devices; the manifest's part about them. */
  async _state(
    state: CapturedState,
    agentKey: Uint8Array,
    parent: Manifest | null,
  ): Promise<Required<Pick<Manifest, "memory" | "devices">>> {
    const { agent, checkpoint } = this.#draft;
    const sealing = this.#context.pool.run("sealDevices", {
      agentKey,
      label: { part: "devices", agent, checkpoint },
      body: state.devices,
    });
    sealing.catch(() => undefined); // Awaited below, after the pages.
    const { base, map } = await this.#memory(state, agentKey, parent);
    const mapPath = this.#folder.pageMap(checkpoint);
    await writeNew(mapPath, map.file);
    await this.#step("page-map-written");
    const devices = await sealing;
    const devicesPath = this.#folder.devices(checkpoint);
    await writeNew(devicesPath, devices.file);
    await syncFolder(dirname(devicesPath));
    await this.#step("devices-written");
    this.#files.push(mapPath, devicesPath);
    return {
      memory: {
        pageBytes: PAGE_BYTES,
        base,
        pageMap: { digest: map.digest as Digest, bytes: map.file.length },
        packs: map.packs.map((pack) => ({ ...pack })) as NonNullable<Manifest["memory"]>["packs"],
        zeroPages: map.zeroPages,
        storedPages: map.storedPages,
      },
      devices: { digest: devices.digest as Digest, bytes: devices.file.length },
    };
  }

  async #memory(
    state: CapturedState,
    agentKey: Uint8Array,
    parent: Manifest | null,
  ): Promise<{ base: MemoryBaseFacts; map: BuiltMap }> {
    const { agent, checkpoint, substrate } = this.#draft;
    const bytes = substrate.shape.memoryBytes;
    const pageCount = bytes / PAGE_BYTES;
    const label = { part: "page-map", agent, checkpoint } as const;
    const basePath = state.base.kind === "zero" ? null : state.base.path;
    const context = this.#context;
    if (state.ownBase) {
      const digest = await this.#ownBase(state, bytes, basePath);
      const map = await context.pool.run("buildMap", {
        pageCount,
        parent: null,
        droppedPacks: [],
        batches: [],
        pack: null,
        agentKey,
        label,
      });
      return { base: { kind: "own", digest, bytes }, map };
    }
    const base: MemoryBaseFacts = {
      kind: state.base.kind,
      digest: state.base.kind === "zero" ? zeroDigest : state.base.digest,
      bytes,
    };
    if (state.base.kind === "own") await this.#adopt(state.base.digest, state.base.path, bytes);
    const { map, files } = await writePages(
      {
        context,
        folder: this.#folder,
        attempt: this.#attempt,
        agentKey,
        label,
        pageCount,
        basePath,
        parent: await this.#parentMap(parent, base, agentKey),
        step: this.#step,
      },
      state.pages,
    );
    this.#files.push(...files);
    return { base, map };
  }

  /** The parent's page map where its pages lie over the same base. A damaged one is done without. */
  async #parentMap(
    parent: Manifest | null,
    base: MemoryBaseFacts,
    agentKey: Uint8Array,
  ): Promise<Parent | null> {
    const memory = parent?.memory;
    if (parent === null || memory === undefined) return null;
    const same = memory.base.digest === base.digest && memory.base.bytes === base.bytes;
    if (!same || memory.packs.length === 0) return null;
    const sizes = new Map<string, number>();
    for (const { id } of memory.packs) {
      const stats = await stat(this.#folder.pack(id)).catch(() => null);
      if (stats !== null) sizes.set(id, stats.size);
    }
    const map = await this.#context.pool
      .run("openMap", {
        path: this.#folder.pageMap(parent.checkpoint),
        ...memory.pageMap,
        agentKey,
        label: { part: "page-map", agent: parent.agent, checkpoint: parent.checkpoint },
        pageCount: base.bytes / PAGE_BYTES,
      })
      .catch(() => null);
    if (map === null) return null;
    const bytes = new Map(map.packs.map((pack) => [pack.id, pack.bytes]));
    const droppedPacks = packsToDrop(
      map,
      (id) => this.#context.damagedPacks.has(id) || sizes.get(id) !== bytes.get(id),
    );
    return { map, droppedPacks };
  }

  async #ownBase(state: CapturedState, bytes: number, basePath: string | null): Promise<Digest> {
    const { pool } = this.#context;
    const temporary = temporaryPath(this.#folder.base(zeroDigest));
    this.#attempt.owns(temporary);
    if (basePath !== null) this.#attempt.needBytes += (await stat(basePath)).blocks * 512;
    const source = { bytes, basePath };
    const digest = await writeBaseFile(pool, source, temporary, state.pages, (count) => {
      this.#attempt.needBytes += count;
    });
    const path = this.#folder.base(digest);
    if (await publishBase(this.#folder.bases, temporary, digest)) {
      this.#attempt.owns(path);
      this.#files.push(path);
    }
    await this.#context
      .verified(this.#draft.agent)
      .record({ part: "base", name: digest, path }, digest);
    await this.#step("base-written");
    return digest;
  }

  /** The base of a fork's origin becomes one of the fork's own. */
  async #adopt(digest: Digest, from: string, bytes: number): Promise<void> {
    const path = this.#folder.base(digest);
    if ((await stat(path).catch(() => null)) !== null) return;
    this.#attempt.owns(path);
    await adoptBase(this.#context.pool, this.#folder.bases, digest, from, bytes);
  }

  /** Makes the layers durable and says what they are. Those that the parent names must be as they were. */
  async #layers(parent: Manifest | null): Promise<Manifest["disk"]["layers"]> {
    const verified = this.#context.verified(this.#draft.agent);
    const before = new Map(parent?.disk.layers.map((layer) => [layer.id, layer]));
    const layers: { id: LayerId; digest: Digest; bytes: number }[] = [];
    for (const id of this.#draft.disk.layers) {
      const file = { part: "layer", name: id, path: this.#folder.layer(id) } as const;
      const known = before.get(id);
      if (known !== undefined) {
        const check = await verified.verify(file, known);
        if (check !== null) this.#context.checks.add(this.#draft.agent, file.path, check);
        layers.push({ id, digest: known.digest, bytes: known.bytes });
        continue;
      }
      await syncFile(file.path);
      layers.push({ id, ...(await verified.digestOf(file)) });
    }
    return layers;
  }
}
