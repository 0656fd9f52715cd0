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
import type { Digest, LayerId, Manifest } from "@perdure/protocol";
import type {
  CapturedState,
  CheckpointDraft,
  PublishedCheckpoint,
  StoreStep,
} from "../../core/ports/checkpoint-store.ts";
import { FOLDER_MODE, replaceFile, syncFile, syncFolder, writeNew } from "../durable.ts";
import { encodeManifest } from "../signature.ts";
import { diskFull, isDiskFull } from "../store-error.ts";
import type { AgentFolder } from "./agent-folder.ts";
import { Attempt } from "./attempt.ts";
import { readManifest } from "./manifest-file.ts";
import type { StoreContext } from "./store-context.ts";
import { writeMemory } from "./write-memory.ts";

/** Manifest, folders and the like, on top of pages and devices. */
const overheadBytes = 64 * 1024;

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
    // What cannot be removed now is found by the next collection; the first error is the one to tell.
    await attempt.undo().catch(() => undefined);
    if (!isDiskFull(error) || error instanceof PerdureError) throw error;
    throw await diskFull(folder.path, `write checkpoint "${draft.checkpoint}"`, attempt.needBytes);
  }
}

type Saved = Required<Pick<Manifest, "memory" | "devices">>;

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
    let saved: Saved | undefined;
    try {
      if (state !== null) saved = await this.#state(state, agentKey, parent);
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
      ...(draft.importedFrom === undefined ? {} : { importedFrom: draft.importedFrom }),
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
  async #state(
    state: CapturedState,
    agentKey: Uint8Array,
    parent: Manifest | null,
  ): Promise<Saved> {
    const { agent, checkpoint } = this.#draft;
    const sealing = this.#context.pool.run("sealDevices", {
      agentKey,
      label: { part: "devices", agent, checkpoint },
      body: state.devices,
    });
    sealing.catch(() => undefined); // Awaited below, after the pages.
    const { base, map, files } = await writeMemory(
      {
        context: this.#context,
        folder: this.#folder,
        attempt: this.#attempt,
        agent,
        agentKey,
        label: { part: "page-map", agent, checkpoint },
        memoryBytes: this.#draft.substrate.shape.memoryBytes,
        parent,
        step: this.#step,
      },
      state,
    );
    const mapPath = this.#folder.pageMap(checkpoint);
    await writeNew(mapPath, map.file);
    await this.#step("page-map-written");
    const devices = await sealing;
    const devicesPath = this.#folder.devices(checkpoint);
    await writeNew(devicesPath, devices.file);
    await syncFolder(dirname(devicesPath));
    await this.#step("devices-written");
    this.#files.push(...files, mapPath, devicesPath);
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
