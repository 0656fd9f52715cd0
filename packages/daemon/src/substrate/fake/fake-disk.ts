/**
 * A disk of records: each layer is a JSON object of what was written while it was on top. Reading looks
 * from the top down. A file that is not such an object (an image, an empty qcow2) holds no record.
 */
import { createHash } from "node:crypto";
import { PerdureError } from "@perdure/protocol";
import type { DiskChain } from "../../core/ports/substrate.ts";
import type { FakeFiles } from "./fake-file.ts";

type Records = Record<string, string>;

export class FakeDisk {
  readonly #files: FakeFiles;
  #layers: string[];

  constructor(files: FakeFiles, chain: DiskChain) {
    this.#files = files;
    this.#layers = [...chain.layerPaths];
    for (const path of this.#layers) this.#require(path);
  }

  /** The one layer that is written; null where the disk has none. */
  get top(): string | null {
    return this.#layers.at(-1) ?? null;
  }

  get layers(): readonly string[] {
    return this.#layers;
  }

  addLayer(path: string): void {
    this.#require(path);
    this.#layers = [...this.#layers, path];
  }

  mergeLayers(below: string, top: string): void {
    const kept = this.#layers.indexOf(below) + 1;
    if (kept === 0 || top !== this.top) {
      throw new PerdureError("machine_failed", `"${below}" and "${top}" are not layers to merge`);
    }
    const merged = Object.assign(
      {},
      ...this.#layers.slice(kept).map((path) => readRecords(this.#files, path)),
    ) as Records;
    this.#files.write(top, Buffer.from(JSON.stringify(merged)));
    this.#layers = [...this.#layers.slice(0, kept), top].filter(
      (path, index, all) => all.indexOf(path) === index,
    );
  }

  read(key: string): string | null {
    return this.#view()[key] ?? null;
  }

  write(key: string, value: string): void {
    const { top } = this;
    if (top === null) throw new PerdureError("machine_failed", "The machine has no disk");
    const records = { ...readRecords(this.#files, top), [key]: value };
    this.#files.write(top, Buffer.from(JSON.stringify(records)));
  }

  /** SHA-256 of all that can be read. */
  digest(): string {
    const sorted = Object.entries(this.#view()).sort(([one], [two]) => (one < two ? -1 : 1));
    return createHash("sha256").update(JSON.stringify(sorted)).digest("hex");
  }

  #view(): Records {
    return Object.assign(
      {},
      ...this.#layers.map((path) => readRecords(this.#files, path)),
    ) as Records;
  }

  #require(path: string): void {
    if (this.#files.read(path) !== null) return;
    throw new PerdureError("machine_failed", `Disk layer "${path}" does not exist`);
  }
}

/** What was written while this layer was the top. */
export function readRecords(files: FakeFiles, path: string): Records {
  const bytes = files.read(path);
  if (bytes?.[0] !== 0x7b) return {};
  return JSON.parse(Buffer.from(bytes).toString("utf8")) as Records;
}
