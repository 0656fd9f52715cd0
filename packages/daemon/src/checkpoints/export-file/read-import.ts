/**
 * Takes an agent in from a file. Each part goes to its place as it comes, and is held against its digest at
 * its end; what is on this host already is compared, not stored. Layers and bases go to where they stay;
 * packs, page maps and devices, which are under the key of the exporting host's agent, and the image lie in a
 * folder that the next collection removes, until memory was written anew under the agent's own key.
 */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { PAGE_BYTES } from "@perdure/protocol";
import type { CheckpointId, Manifest, PackId } from "@perdure/protocol";
import type { CapturedState } from "../../core/ports/checkpoint-store.ts";
import type { AgentImport, ExportedImage, ImportPlace } from "../../core/ports/export-file.ts";
import type { MemoryBase } from "../../core/ports/substrate.ts";
import { FOLDER_MODE, syncFolder } from "../durable.ts";
import { matchPacks } from "../local/open-checkpoint.ts";
import { readBatches } from "../local/read-batches.ts";
import type { StoreContext } from "../local/store-context.ts";
import { diskFull, isDiskFull, storeError } from "../store-error.ts";
import { BlockCipher, decodeBlock } from "./block.ts";
import { readHeader, TRAILER_BYTES } from "./header.ts";
import type { ReadHeader } from "./header.ts";
import { ImportTarget } from "./import-target.ts";
import { asInvalid, invalid } from "./invalid.ts";
import { PART_BLOCK_BYTES, PartDigest } from "./part-digest.ts";
import { AGENT_KEY_BYTES, partsOf } from "./part.ts";
import type { ExportPart } from "./part.ts";
import { unprotect } from "./protection.ts";
import { StreamReader } from "./stream-reader.ts";
import { findTwin } from "./twin.ts";

/** In the agent's folder; a collection takes what begins with a dot away. */
const stagingName = ".import";

export async function openImport(
  context: StoreContext,
  bytes: AsyncIterable<Uint8Array>,
  passphrase: string | null,
): Promise<AgentImport> {
  const reader = new StreamReader(bytes);
  try {
    const read = await readHeader(reader);
    const fileKey = await unprotect(read.header.protection, passphrase);
    const cipher = fileKey === null ? null : new BlockCipher(fileKey, read.digest);
    return new FileImport(context, reader, read, cipher);
  } catch (error) {
    await reader.close();
    throw error;
  }
}

class FileImport implements AgentImport {
  readonly contents: AgentImport["contents"];
  readonly #context: StoreContext;
  readonly #reader: StreamReader;
  readonly #read: ReadHeader;
  readonly #cipher: BlockCipher | null;
  #blocks = 0;
  #agentKey: Uint8Array | null = null;
  #place: ImportPlace | null = null;

  constructor(
    context: StoreContext,
    reader: StreamReader,
    read: ReadHeader,
    cipher: BlockCipher | null,
  ) {
    this.contents = read.contents;
    this.#context = context;
    this.#reader = reader;
    this.#read = read;
    this.#cipher = cipher;
  }

  get image(): ExportedImage | null {
    const { header, image } = this.#read;
    if (header.image === null || image === null || this.#place?.storeImage !== true) return null;
    const file = (kind: "kernel" | "initramfs", content: NonNullable<typeof image>["kernel"]) => ({
      path: join(this.#staging(), kind),
      ...content,
    });
    const { rootfs } = image;
    return {
      description: header.image.description,
      kernel: file("kernel", image.kernel),
      initramfs: file("initramfs", image.initramfs),
      rootfs: rootfs === null ? null : { path: join(this.#staging(), "rootfs"), ...rootfs },
    };
  }

  /** What it takes on the disk, and packs once more while their pages are written anew. */
  get roomBytes(): number {
    const parts = this.#parts();
    const sum = (of: readonly ExportPart[]): number =>
      of.reduce((all, part) => all + part.bytes, 0);
    const packs = parts.filter(({ kind }) => kind === "pack");
    return Math.min(this.#read.header.diskBytes, sum(parts)) + sum(packs);
  }

  async receive(place: ImportPlace): Promise<void> {
    this.#place = place;
    const folder = this.#context.folder(place.agent);
    try {
      await mkdir(this.#staging(), { mode: FOLDER_MODE });
      for (const part of this.#parts()) await this.#part(part, place);
      const digest = this.#reader.digest();
      if (!(await this.#reader.take(TRAILER_BYTES)).equals(digest)) {
        throw invalid("its digest at the end is not that of what came before");
      }
      await this.#reader.end();
      for (const path of [folder.layers, folder.bases, this.#staging(), folder.path]) {
        await syncFolder(path);
      }
    } catch (error) {
      if (!isDiskFull(error)) throw storeError(asInvalid(error), "import an agent");
      throw await diskFull(folder.path, "import an agent", this.#read.header.diskBytes);
    }
  }

  async open(checkpoint: CheckpointId): Promise<CapturedState | null> {
    const manifest = this.#manifestOf(checkpoint);
    const { memory, devices, agent } = manifest;
    if (memory === undefined || devices === undefined) return null;
    const agentKey = this.#agentKey;
    if (agentKey === null) throw new Error("The file was not received");
    const { pool } = this.#context;
    try {
      const map = await pool.run("openMap", {
        path: this.#staged("page-map", checkpoint),
        ...memory.pageMap,
        agentKey,
        label: { part: "page-map", agent, checkpoint },
        pageCount: memory.base.bytes / PAGE_BYTES,
      });
      matchPacks(map, memory.packs);
      const deviceState = await pool.run("openDevices", {
        path: this.#staged("devices", checkpoint),
        ...devices,
        agentKey,
        label: { part: "devices", agent, checkpoint },
      });
      return {
        base: this.#base(memory),
        pages: asInvalidPages(readBatches(pool, agentKey, map, (id) => this.#staged("pack", id))),
        devices: deviceState,
        ownBase: false,
      };
    } catch (error) {
      throw storeError(asInvalid(error), "import an agent");
    }
  }

  close(): Promise<void> {
    return this.#reader.close();
  }

  /** Where the base is from now on: the template's, where it is here, else one of the agent's own. */
  #base({ base: { kind, digest } }: NonNullable<Manifest["memory"]>): MemoryBase {
    if (kind === "zero") return { kind };
    const place = this.#requirePlace();
    if (place.templateBase?.digest === digest) return place.templateBase;
    return { kind: "own", digest, path: this.#context.folder(place.agent).base(digest) };
  }

  #manifestOf(checkpoint: CheckpointId): Manifest {
    const found = this.contents.checkpoints.find(
      ({ manifest }) => manifest.checkpoint === checkpoint,
    );
    if (found === undefined) throw new Error("The file holds no such checkpoint");
    return found.manifest;
  }

  #parts(): readonly ExportPart[] {
    const manifests = this.contents.checkpoints.map(({ manifest }) => manifest);
    return partsOf(manifests, this.#read.image);
  }

  async #part(part: ExportPart, place: ImportPlace): Promise<void> {
    if (part.kind === "key") {
      const key = await this.#block(AGENT_KEY_BYTES);
      this.#agentKey = key ?? new Uint8Array(AGENT_KEY_BYTES);
      return;
    }
    const path = this.#pathOf(part);
    const twin = await findTwin(this.#context, part, place);
    const isStored = twin === null && !(isOfImage(part) && !place.storeImage);
    const target = await ImportTarget.open(isStored ? path : null, part);
    try {
      const digest = new PartDigest(part);
      for (let offset = 0; offset < part.bytes; offset += PART_BLOCK_BYTES) {
        const bytes = Math.min(PART_BLOCK_BYTES, part.bytes - offset);
        const content = await this.#block(bytes);
        digest.add(content ?? bytes);
        await target.write(content, offset);
      }
      if (!digest.isRight()) throw invalid(`its ${part.kind} does not have its digest`);
      await target.finish();
    } finally {
      await target.close();
    }
    // Only who has the whole content gets a name for what another agent has.
    if (twin !== null) await twin.link(path);
    await this.#noteVerified(part, path);
  }

  /** So that nobody hashes it once more to use it. */
  async #noteVerified(part: ExportPart, path: string): Promise<void> {
    if (part.kind !== "layer" && part.kind !== "base") return;
    const { agent, templateBase } = this.#requirePlace();
    if (part.kind === "base" && part.digest === templateBase?.digest) return;
    const name = part.kind === "layer" ? part.id : part.digest;
    await this.#context.verified(agent).record({ part: part.kind, name, path }, part.digest);
  }

  #block(bytes: number): Promise<Buffer<ArrayBuffer> | null> {
    return decodeBlock(this.#cipher, this.#blocks++, this.#reader, bytes);
  }

  #pathOf(part: Exclude<ExportPart, { kind: "key" }>): string {
    const folder = this.#context.folder(this.#requirePlace().agent);
    switch (part.kind) {
      case "layer":
        return folder.layer(part.id);
      case "base":
        return folder.base(part.digest);
      case "pack":
        return this.#staged("pack", part.id);
      case "page-map":
      case "devices":
        return this.#staged(part.kind, part.checkpoint);
      case "kernel":
      case "initramfs":
      case "rootfs":
        return join(this.#staging(), part.kind);
    }
  }

  #staged(kind: "pack" | "page-map" | "devices", id: PackId | CheckpointId | string): string {
    return join(this.#staging(), `${kind}-${id}`);
  }

  #staging(): string {
    return join(this.#context.folder(this.#requirePlace().agent).path, stagingName);
  }

  #requirePlace(): ImportPlace {
    if (this.#place === null) throw new Error("The file was not received");
    return this.#place;
  }
}

function isOfImage({ kind }: ExportPart): boolean {
  return kind === "kernel" || kind === "initramfs" || kind === "rootfs";
}

/** A pack that is not what its map says is the file's fault. */
async function* asInvalidPages(pages: CapturedState["pages"]): CapturedState["pages"] {
  try {
    yield* pages;
  } catch (error) {
    throw asInvalid(error);
  }
}
