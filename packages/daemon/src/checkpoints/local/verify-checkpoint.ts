/**
 * Reads everything that one checkpoint names and says of each part whether it is what was written. Takes
 * no lock and keeps no record: a file that a collection takes away meanwhile is told as missing, and the
 * caller knows whether it was to be there. One job at a time, so that a wake beside it hardly waits.
 */
import { lstat } from "node:fs/promises";
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId, Digest, Manifest, VerifiedPart } from "@perdure/protocol";
import type { Verification } from "../../core/ports/checkpoint-store.ts";
import { BLOCK_BYTES, blockCount, contentDigest } from "../content-digest.ts";
import { Damage } from "../damage.ts";
import { packKey } from "../pack.ts";
import type { PageMap } from "../page-map.ts";
import { readManifest } from "./manifest-file.ts";
import { matchPacks } from "./open-checkpoint.ts";
import type { StoreContext } from "./store-context.ts";

/** Blocks of 1 MiB hashed, and pages compared, by one job. */
const blocksPerJob = 8;
const pagesPerJob = 2048;

type Memory = NonNullable<Manifest["memory"]>;
type Part = VerifiedPart["part"];

export async function verifyCheckpoint(
  context: StoreContext,
  agent: AgentId,
  checkpoint: CheckpointId,
  verification: Verification,
): Promise<readonly VerifiedPart[]> {
  return new Verifier(context, agent, checkpoint, verification).run();
}

class Verifier {
  readonly #context: StoreContext;
  readonly #agent: AgentId;
  readonly #checkpoint: CheckpointId;
  readonly #verification: Verification;
  readonly #parts: VerifiedPart[] = [];
  #readBytes = 0;
  #totalBytes = 0;

  constructor(
    context: StoreContext,
    agent: AgentId,
    checkpoint: CheckpointId,
    verification: Verification,
  ) {
    this.#context = context;
    this.#agent = agent;
    this.#checkpoint = checkpoint;
    this.#verification = verification;
  }

  async run(): Promise<readonly VerifiedPart[]> {
    const manifest = await this.#part("manifest", null, () => this.#manifest());
    if (manifest === null) return this.#parts;
    this.#totalBytes = this.#bytesOf(manifest);
    const { memory, devices, disk } = manifest;
    if (memory !== undefined && devices !== undefined) await this.#memory(memory, devices);
    for (const layer of disk.layers) {
      const path = this.#context.folder(this.#agent).layer(layer.id);
      const key = `layer/${layer.id}/${layer.digest}`;
      await this.#shared(key, "layer", layer.id, () => this.#file("layer", path, layer));
    }
    return this.#parts;
  }

  async #manifest(): Promise<Manifest> {
    const { manifest, digest } = await readManifest(this.#context, this.#agent, this.#checkpoint);
    if (digest === this.#verification.digest) return manifest;
    throw new Damage("manifest", "digest", "its manifest is not the one that was published");
  }

  /** What is to be read: files that were read for another checkpoint are not read again. */
  #bytesOf({ memory, devices, disk }: Manifest): number {
    const known = (key: string): boolean => this.#verification.known.has(key);
    const layers = disk.layers.filter(({ id, digest }) => !known(`layer/${id}/${digest}`));
    let sum = layers.reduce((bytes, layer) => bytes + layer.bytes, 0);
    if (memory === undefined || devices === undefined) return sum;
    sum += memory.pageMap.bytes + devices.bytes;
    for (const pack of memory.packs) sum += pack.bytes;
    const { kind, digest, bytes } = memory.base;
    return kind === "zero" || known(`base/${digest}`) ? sum : sum + bytes;
  }

  async #memory(memory: Memory, devices: NonNullable<Manifest["devices"]>): Promise<void> {
    const { keyRing, pool } = this.#context;
    const folder = this.#context.folder(this.#agent);
    const agentKey = await this.#part("key", null, () => keyRing.agentKey(folder.key, this.#agent));
    if (agentKey === null) return;
    const label = { agent: this.#agent, checkpoint: this.#checkpoint };
    const map = await this.#part("page-map", null, async () => {
      const found = await pool.run("openMap", {
        path: folder.pageMap(this.#checkpoint),
        ...memory.pageMap,
        agentKey,
        label: { part: "page-map", ...label },
        pageCount: memory.base.bytes / PAGE_BYTES,
      });
      matchPacks(found, memory.packs);
      return found;
    });
    this.#read(memory.pageMap.bytes);
    await this.#part("devices", null, () =>
      pool.run("openDevices", {
        path: folder.devices(this.#checkpoint),
        ...devices,
        agentKey,
        label: { part: "devices", ...label },
      }),
    );
    this.#read(devices.bytes);
    if (map !== null) await this.#packs(map, agentKey);
    const { kind, digest } = memory.base;
    if (kind === "zero") return;
    await this.#shared(`base/${digest}`, "base", digest, async () => {
      const path = kind === "own" ? folder.base(digest) : await this.#templateBase(digest);
      await this.#file("base", path, memory.base);
    });
  }

  async #packs(map: PageMap, agentKey: Uint8Array): Promise<void> {
    const folder = this.#context.folder(this.#agent);
    const packs = map.packs.map(({ id, salt }) => ({
      path: folder.pack(id as Parameters<typeof folder.pack>[0]),
      key: packKey(agentKey, id, salt),
    }));
    const found = new Map<number, { check: string; message: string }>();
    const entries = map.index.length;
    const allBytes = map.packs.reduce((sum, { bytes }) => sum + bytes, 0);
    for (let from = 0; from < entries; from += pagesPerJob) {
      this.#verification.signal.throwIfAborted();
      const to = Math.min(from + pagesPerJob, entries);
      const damaged = await this.#context.pool.run("verifyPages", { map, packs, from, to });
      for (const { pack, ...how } of damaged) if (!found.has(pack)) found.set(pack, how);
      this.#read(Math.floor((allBytes * to) / entries) - Math.floor((allBytes * from) / entries));
    }
    map.packs.forEach(({ id }, i) => {
      const damage = found.get(i);
      this.#parts.push({
        part: "pack",
        name: id,
        verdict: damage === undefined ? "good" : "damaged",
        check: damage?.check ?? null,
        detail: damage?.message ?? null,
      });
    });
  }

  async #templateBase(digest: Digest): Promise<string> {
    const { tenant } = (await readManifest(this.#context, this.#agent, this.#checkpoint)).manifest;
    const path = await this.#context.findTemplateBase(tenant, digest);
    if (path !== null) return path;
    throw new Damage("base", "presence", "the base of its template is missing");
  }

  /** Hashes a large file. @throws Damage */
  async #file(
    part: "base" | "layer",
    path: string,
    { digest, bytes }: { readonly digest: Digest; readonly bytes: number },
  ): Promise<void> {
    const stats = await lstat(path).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    });
    if (stats?.isFile() !== true) {
      throw new Damage(
        part,
        "presence",
        `its ${part} is ${stats === null ? "missing" : "no file"}`,
      );
    }
    if (stats.size !== bytes) {
      throw new Damage(part, "size", `its ${part} does not have the size that was written`);
    }
    const blocks = blockCount(bytes);
    const pieces: Uint8Array[] = [];
    for (let fromBlock = 0; fromBlock < blocks; fromBlock += blocksPerJob) {
      this.#verification.signal.throwIfAborted();
      const toBlock = Math.min(fromBlock + blocksPerJob, blocks);
      const range = { bytes, fromBlock, toBlock };
      pieces.push(await this.#context.pool.run("digestBlocks", { part, path, ...range }));
      this.#read(Math.min(bytes, toBlock * BLOCK_BYTES) - fromBlock * BLOCK_BYTES);
    }
    if (contentDigest(bytes, pieces) === digest) return;
    throw new Damage(part, "digest", `its ${part} does not have the digest that was written`);
  }

  /** As `#part`, once for all checkpoints of a run that name the same file. */
  async #shared(key: string, part: Part, name: string, work: () => Promise<void>): Promise<void> {
    const known = this.#verification.known.get(key);
    if (known !== undefined) {
      this.#parts.push(known);
      return;
    }
    await this.#part(part, name, work);
    const found = this.#parts.at(-1);
    if (found !== undefined) this.#verification.known.set(key, found);
  }

  /** Notes what came of reading a part; null where it is damaged. */
  async #part<T>(part: Part, name: string | null, work: () => Promise<T>): Promise<T | null> {
    this.#verification.signal.throwIfAborted();
    try {
      const value = await work();
      this.#parts.push({ part, name, verdict: "good", check: null, detail: null });
      return value;
    } catch (error) {
      const damage = damageOf(error);
      if (damage === null) throw error;
      this.#parts.push({ part, name, verdict: "damaged", ...damage });
      return null;
    }
  }

  #read(bytes: number): void {
    this.#readBytes += bytes;
    this.#verification.onProgress(this.#readBytes, this.#totalBytes);
  }
}

function damageOf(error: unknown): Pick<VerifiedPart, "check" | "detail"> | null {
  if (error instanceof Damage) return { check: error.check, detail: error.message };
  if (!(error instanceof PerdureError)) return null;
  switch (error.code) {
    case "checkpoint_key_missing":
      return { check: "presence", detail: error.message };
    case "checkpoint_not_found":
      return { check: "presence", detail: "its manifest is missing" };
    default:
      return null;
  }
}
