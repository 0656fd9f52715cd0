/**
 * Checkpoint store in a folder of the local file system: implements `CheckpointStore`.
 *
 * Operations that change an agent's files run one at a time per agent, so a collection never meets a
 * write of the same agent half way. Reading needs no lock: what a published checkpoint names is
 * immutable until the state store lets go of it (I2).
 */
import { mkdir, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { PerdureError, agentIdSchema } from "@perdure/protocol";
import type {
  AgentId,
  CheckpointId,
  Digest,
  LayerId,
  Manifest,
  VerifiedPart,
} from "@perdure/protocol";
import type {
  CapturedState,
  CheckpointDraft,
  CheckpointStore,
  OpenedCheckpoint,
  PublishedCheckpoint,
  StoreStep,
  Verification,
} from "../../core/ports/checkpoint-store.ts";
import type { Clock } from "../../core/ports/clock.ts";
import type { AgentExport, AgentImport, ExportRequest } from "../../core/ports/export-file.ts";
import type { MemoryBase } from "../../core/ports/substrate.ts";
import { FOLDER_MODE, syncFile, syncFolder, temporaryPath } from "../durable.ts";
import { openImport } from "../export-file/read-import.ts";
import { openExport } from "../export-file/write-export.ts";
import type { KeyRing } from "../key-ring.ts";
import { diskFull, isDiskFull, storeError } from "../store-error.ts";
import { WorkPool } from "../work/pool.ts";
import { AgentQueue } from "./agent-queue.ts";
import { BackgroundChecks } from "./background-check.ts";
import type { DamageReport, VerifyInBackground } from "./background-check.ts";
import { allocatedBytes, collectAgent } from "./collect.ts";
import { EmptyLayers } from "./empty-layer.ts";
import { readHostBootId } from "./host-boot.ts";
import { linkLayerFile, removeLayerFile } from "./layer.ts";
import { readManifest } from "./manifest-file.ts";
import { openCheckpoint } from "./open-checkpoint.ts";
import { adoptBase, publishBase, writeBaseFile } from "./own-base.ts";
import { Reservations } from "./reservation.ts";
import { StoreContext } from "./store-context.ts";
import type { FindTemplateBase } from "./store-context.ts";
import { verifyCheckpoint } from "./verify-checkpoint.ts";
import { writeCheckpoint } from "./write-checkpoint.ts";

export interface LocalCheckpointStoreOptions {
  readonly home: string;
  readonly keyRing: KeyRing;
  readonly clock: Clock;
  /** `LocalTemplateStore.findBase`, where agents wake from templates. */
  readonly findTemplateBase: FindTemplateBase;
  /** Shared with the template store; one of the store's own where absent. */
  readonly pool?: WorkPool;
  /** Decides when a full check that is due since the host booted runs; default: soon, one at a time. */
  readonly verifyInBackground?: VerifyInBackground;
  /** Called when such a check finds damage. */
  readonly onDamage?: (report: DamageReport) => void;
  /** Default: the running host's. */
  readonly hostBootId?: string;
  /** Default: `qemu-img` on the path. */
  readonly qemuImg?: string;
}

export async function openLocalCheckpointStore(
  options: LocalCheckpointStoreOptions,
): Promise<LocalCheckpointStore> {
  await mkdir(join(options.home, "agents"), { recursive: true, mode: FOLDER_MODE });
  await syncFolder(options.home);
  return new LocalCheckpointStore(options, options.hostBootId ?? (await readHostBootId()));
}

export class LocalCheckpointStore implements CheckpointStore {
  readonly #context: StoreContext;
  readonly #ownPool: WorkPool | null;
  readonly #queue = new AgentQueue();
  readonly #reservations: Reservations;
  readonly #emptyLayers: EmptyLayers;
  readonly #checks: BackgroundChecks;

  constructor(options: LocalCheckpointStoreOptions, hostBootId: string) {
    this.#ownPool = options.pool === undefined ? new WorkPool() : null;
    this.#checks = new BackgroundChecks(options.verifyInBackground, options.onDamage);
    this.#context = new StoreContext({
      ...options,
      hostBootId,
      pool: options.pool ?? (this.#ownPool as WorkPool),
      checks: this.#checks,
    });
    this.#reservations = new Reservations(options.home);
    this.#emptyLayers = new EmptyLayers(options.home, options.qemuImg);
  }

  async createAgent(agent: AgentId): Promise<void> {
    const folder = this.#context.folder(agent);
    await this.#change(agent, `create the folder of agent "${agent}"`, async () => {
      for (const path of [folder.checkpoints, folder.packs, folder.bases, folder.layers]) {
        await mkdir(path, { recursive: true, mode: FOLDER_MODE });
      }
      await this.#context.keyRing.createAgentKey(folder.key, agent);
      await syncFolder(join(this.#context.home, "agents"));
    });
  }

  async removeAgent(agent: AgentId): Promise<void> {
    const folder = this.#context.folder(agent);
    await this.#change(agent, `remove the files of agent "${agent}"`, async () => {
      await this.#context.keyRing.destroyAgentKey(folder.key);
      // A background check of a file may still put its record there: then once more.
      await rm(folder.path, { recursive: true, force: true, maxRetries: 5 });
      await syncFolder(join(this.#context.home, "agents"));
      this.#context.forgetVerified(agent);
    });
  }

  async listAgents(): Promise<readonly AgentId[]> {
    const names = await readdir(join(this.#context.home, "agents"));
    return names.flatMap((name) => {
      const parsed = agentIdSchema.safeParse(name);
      return parsed.success ? [parsed.data] : [];
    });
  }

  async reserve(_agent: AgentId, bytes: number): Promise<{ release(): void }> {
    return await this.#reservations.take(bytes);
  }

  async write(
    draft: CheckpointDraft,
    state: CapturedState | null,
    step: StoreStep,
  ): Promise<PublishedCheckpoint> {
    return await this.#queue.run(draft.agent, async () => {
      const thrownByStep = new Set<unknown>();
      const watched: StoreStep = async (name) => {
        try {
          await step(name);
        } catch (error) {
          thrownByStep.add(error);
          throw error;
        }
      };
      try {
        return await writeCheckpoint(this.#context, draft, state, watched);
      } catch (error) {
        // What the caller's own step threw is the caller's, unchanged.
        if (thrownByStep.has(error)) throw error;
        throw storeError(error, `write checkpoint "${draft.checkpoint}"`);
      }
    });
  }

  async open(agent: AgentId, checkpoint: CheckpointId): Promise<OpenedCheckpoint> {
    try {
      return await openCheckpoint(this.#context, agent, checkpoint);
    } catch (error) {
      throw storeError(error, `open checkpoint "${checkpoint}"`);
    }
  }

  async verify(
    agent: AgentId,
    checkpoint: CheckpointId,
    verification: Verification,
  ): Promise<readonly VerifiedPart[]> {
    try {
      return await verifyCheckpoint(this.#context, agent, checkpoint, verification);
    } catch (error) {
      verification.signal.throwIfAborted();
      throw storeError(error, `verify checkpoint "${checkpoint}"`);
    }
  }

  async manifest(agent: AgentId, checkpoint: CheckpointId): Promise<Manifest> {
    try {
      return (await readManifest(this.#context, agent, checkpoint)).manifest;
    } catch (error) {
      throw storeError(error, `open checkpoint "${checkpoint}"`);
    }
  }

  async openExport(request: ExportRequest): Promise<AgentExport> {
    try {
      return await openExport(this.#context, request);
    } catch (error) {
      throw storeError(error, `export agent "${request.agent.name}"`);
    }
  }

  async openImport(
    bytes: AsyncIterable<Uint8Array>,
    passphrase: string | null,
  ): Promise<AgentImport> {
    return await openImport(this.#context, bytes, passphrase);
  }

  async createLayer(agent: AgentId, layer: LayerId, diskBytes: number): Promise<void> {
    const folder = this.#context.folder(agent);
    await this.#change(agent, `make disk layer "${layer}"`, () =>
      this.#emptyLayers.create(folder.layer(layer), diskBytes),
    );
  }

  async syncLayer(agent: AgentId, layer: LayerId): Promise<void> {
    const folder = this.#context.folder(agent);
    await this.#change(agent, `make disk layer "${layer}" durable`, async () => {
      await syncFile(folder.layer(layer));
      await syncFolder(folder.layers);
    });
  }

  async linkLayer(agent: AgentId, layer: LayerId, fromPath: string): Promise<void> {
    await this.#change(agent, `link disk layer "${layer}"`, async () => {
      await linkLayerFile(fromPath, this.layerPath(agent, layer));
    });
  }

  async linkBase(
    agent: AgentId,
    { digest, path, bytes }: { digest: Digest; path: string; bytes: number },
  ): Promise<void> {
    const { bases } = this.#context.folder(agent);
    await this.#change(agent, `link memory base "${digest}"`, () =>
      adoptBase(this.#context.pool, bases, digest, path, bytes),
    );
  }

  async writeBase(
    agent: AgentId,
    { base, memoryBytes, pages }: Parameters<CheckpointStore["writeBase"]>[1],
  ): Promise<MemoryBase & { readonly kind: "own" }> {
    const { bases } = this.#context.folder(agent);
    return await this.#change(agent, "write a memory base", async () => {
      const basePath = base.kind === "zero" ? null : base.path;
      const temporary = temporaryPath(join(bases, "new"));
      try {
        const source = { bytes: memoryBytes, basePath };
        const digest = await writeBaseFile(this.#context.pool, source, temporary, pages);
        await publishBase(bases, temporary, digest);
        const path = this.ownBasePath(agent, digest);
        await this.#context.verified(agent).record({ part: "base", name: digest, path }, digest);
        return { kind: "own", digest, path };
      } catch (error) {
        await rm(temporary, { force: true });
        throw error;
      }
    });
  }

  layerPath(agent: AgentId, layer: LayerId): string {
    return this.#context.folder(agent).layer(layer);
  }

  async layerBytes(agent: AgentId, layer: LayerId): Promise<number> {
    return (await stat(this.layerPath(agent, layer))).blocks * 512;
  }

  ownBasePath(agent: AgentId, digest: Digest): string {
    return this.#context.folder(agent).base(digest);
  }

  async removeLayer(agent: AgentId, layer: LayerId): Promise<void> {
    await this.#change(agent, `remove disk layer "${layer}"`, async () => {
      await removeLayerFile(this.layerPath(agent, layer));
      await this.#context.verified(agent).forget([{ part: "layer", name: layer }]);
    });
  }

  async collect(
    agent: AgentId,
    keep: readonly CheckpointId[],
    keepLayers: readonly LayerId[],
    keepBases: readonly Digest[] = [],
  ): Promise<number> {
    return await this.#change(agent, `collect the files of agent "${agent}"`, () =>
      collectAgent(this.#context, agent, keep, keepLayers, keepBases),
    );
  }

  async storedBytes(agent: AgentId): Promise<number> {
    return await allocatedBytes(this.#context.folder(agent).path);
  }

  async close(): Promise<void> {
    this.#checks.close();
    await this.#queue.idle();
    await this.#ownPool?.close();
  }

  async #change<T>(agent: AgentId, action: string, work: () => Promise<T>): Promise<T> {
    return await this.#queue.run(agent, async () => {
      try {
        return await work();
      } catch (error) {
        if (error instanceof PerdureError || !isDiskFull(error)) throw storeError(error, action);
        throw await diskFull(this.#context.home, action, layerBytes);
      }
    });
  }
}

/** What making a folder or an empty layer needs at most. */
const layerBytes = 1024 * 1024;
