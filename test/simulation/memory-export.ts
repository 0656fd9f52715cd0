/**
 * Export and import of the simulated checkpoint store: a file is JSON with every byte in it. Only what the
 * core can see is like the real one; the format has tests of its own.
 */
import { PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId, Digest, LayerId } from "@perdure/protocol";
import type { CapturedState } from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type {
  AgentExport,
  AgentImport,
  ExportContents,
  ExportRequest,
  ImportPlace,
} from "../../packages/daemon/src/core/ports/export-file.ts";
import type { PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import type { MemoryBase } from "../../packages/daemon/src/core/ports/substrate.ts";
import type { MemoryFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import {
  layerPath,
  ownBasePath,
  type AgentFolder,
  type StoredCheckpoint,
} from "./checkpoint-folder.ts";

interface Written {
  readonly contents: ExportContents;
  /** Path within the file → base64. */
  readonly files: Readonly<Record<string, string>>;
  readonly states: Readonly<Record<CheckpointId, WrittenState | null>>;
}
interface WrittenState {
  readonly base: MemoryBase;
  readonly pages: readonly (readonly [number, string])[];
  readonly devices: string;
}

const signer = "9".repeat(64) as Digest;
const encode = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");
const decode = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(Buffer.from(text, "base64"));

/** All that the file holds is read now: what is collected later is in it. */
export function writeExport(
  files: MemoryFiles,
  { agent, head, image, checkpoints }: ExportRequest,
  stored: (checkpoint: CheckpointId) => StoredCheckpoint,
): AgentExport {
  const kept = checkpoints.map(({ id, name }) => ({ ...stored(id), name }));
  const content: Record<string, string> = {};
  const add = (name: string, path: string): void => {
    const bytes = files.read(path);
    if (bytes === null) throw new PerdureError("checkpoint_digest_mismatch", `${name} is gone`);
    content[name] = encode(bytes);
  };
  const states: Record<string, WrittenState | null> = {};
  for (const { manifest, state } of kept) {
    for (const { id } of manifest.disk.layers) add(`layer ${id}`, layerPath(agent.id, id));
    states[manifest.checkpoint] =
      state === null
        ? null
        : {
            base: state.base,
            pages: [...state.pages].map(([index, { bytes }]) => [index, encode(bytes)]),
            devices: encode(state.devices),
          };
    if (state !== null && state.base.kind !== "zero") {
      add(`base ${state.base.digest}`, state.base.path);
    }
  }
  const contents: ExportContents = {
    signer,
    exportedAtMs: 0,
    agent,
    head,
    checkpoints: kept.map(({ manifest, digest, name }) => ({ manifest, digest, name })),
    image: image === null ? null : { description: image.description },
  };
  const text = JSON.stringify({ contents, files: content, states } satisfies Written);
  return { signer, bytes: oneChunk(Buffer.from(text)), close: () => Promise.resolve() };
}

async function* oneChunk(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield await Promise.resolve(bytes);
}

export interface ImportParts {
  readonly files: MemoryFiles;
  readonly life: Life;
  readonly folderOf: (agent: AgentId) => AgentFolder;
  /** Passed before anything is stored. */
  readonly point: (operation: string) => Promise<void>;
}

export async function readImport(
  parts: ImportParts,
  bytes: AsyncIterable<Uint8Array>,
): Promise<AgentImport> {
  const chunks = await Array.fromAsync(bytes);
  await parts.life.pass();
  try {
    return new MemoryImport(parts, JSON.parse(Buffer.concat(chunks).toString()) as Written);
  } catch (error) {
    throw new PerdureError("export_invalid", "The file cannot be imported", { cause: error });
  }
}

class MemoryImport implements AgentImport {
  readonly contents: ExportContents;
  readonly roomBytes: number;
  readonly image = null;
  readonly #parts: ImportParts;
  readonly #written: Written;
  #place: ImportPlace | null = null;

  constructor(parts: ImportParts, written: Written) {
    this.contents = written.contents;
    this.roomBytes = Object.values(written.files).reduce((sum, { length }) => sum + length, 0);
    this.#parts = parts;
    this.#written = written;
  }

  async receive(place: ImportPlace): Promise<void> {
    const { files, folderOf, point, life } = this.#parts;
    this.#place = place;
    for (const [name, text] of Object.entries(this.#written.files)) {
      await point("receive");
      await life.pass();
      const folder = folderOf(place.agent);
      folder.partial.add(`import/${name}`);
      const [kind = "", id = ""] = name.split(" ");
      if (kind === "layer") {
        folder.layers.add(id as LayerId);
        files.write(layerPath(place.agent, id as LayerId), decode(text));
      } else if (id !== place.templateBase?.digest) {
        folder.bases.add(id as Digest);
        files.write(ownBasePath(place.agent, id as Digest), decode(text));
      }
    }
  }

  async open(checkpoint: CheckpointId): Promise<CapturedState | null> {
    await this.#parts.life.pass();
    const state = this.#written.states[checkpoint] ?? null;
    if (state === null) return null;
    const { base, pages, devices } = state;
    return {
      base: this.#base(base),
      pages: batches(pages),
      devices: decode(devices),
      ownBase: false,
    };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #base(base: MemoryBase): MemoryBase {
    if (base.kind === "zero" || this.#place === null) return base;
    const { agent, templateBase } = this.#place;
    if (templateBase?.digest === base.digest) return templateBase;
    return { kind: "own", digest: base.digest, path: ownBasePath(agent, base.digest) };
  }
}

async function* batches(pages: WrittenState["pages"]): AsyncGenerator<PageBatch> {
  for (const [index, text] of [...pages].sort(([one], [two]) => one - two)) {
    yield await Promise.resolve({ indexes: Uint32Array.of(index), bytes: decode(text) });
  }
}
