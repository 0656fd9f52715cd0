/**
 * The disk: a chain of files behind a throttle node that the guest's disk device never lets go of.
 *
 * - I1 The graph is written out: every node names its backing node or none, whatever the files say.
 * - I2 Only the top is opened for writing, and QEMU's locks on files stay on: a second process that
 *   writes the same layer is refused.
 * - I3 Freed blocks become holes in the top (`discard=unmap`). Writes are not searched for zeroes: that
 *   costs a look at every byte and finds little that the guest did not discard.
 */
import { createHash } from "node:crypto";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { DiskChain } from "../../core/ports/substrate.ts";
import { node } from "./command-line.ts";
import { withDeadline } from "./deadline.ts";
import { qemuLimits } from "./limit.ts";
import { isRecord, type QmpClient } from "./qmp.ts";

/** Keeps the files of a machine's layers, by number, for a later daemon. QEMU's word is not taken. */
export interface LayerNotes {
  writeLayers(paths: readonly string[]): Promise<void>;
  readLayers(): Promise<string[]>;
}

/** Names of nodes follow from the files, so that a later daemon knows them; at most 31 characters. */
const layerNode = (path: string): string =>
  `layer-${createHash("sha256").update(path).digest("hex").slice(0, 20)}`;

const IMAGE_NODE = "image";

/** A merge copies at disk speed; a disk of 1 TiB is the largest there is. */
const MERGE_DEADLINE_MS = 6 * 3600 * 1000;
const MERGE_JOB = "merge-layers";

export class Disk {
  readonly #qmp: QmpClient;
  readonly #notes: LayerNotes;
  readonly #clock: Clock;
  /** Files of the layers, lowest first; null: known to an earlier daemon, or changed by a command that failed. */
  #layers: string[] | null;
  #isBelowOpen = false;
  /** A layer that is open and not yet in the chain. */
  #prepared: string | null = null;

  /** @param attached `empty` for a process that was just started */
  constructor(qmp: QmpClient, notes: LayerNotes, clock: Clock, attached: "empty" | "unknown") {
    this.#qmp = qmp;
    this.#notes = notes;
    this.#clock = clock;
    this.#layers = attached === "empty" ? [] : null;
  }

  /** Path of the layer that is written now, null where no disk is attached. */
  async topPath(): Promise<string | null> {
    return (await this.#known()).at(-1) ?? null;
  }

  /** Opens what lies below the top, once, for reading alone. The name of its highest node. */
  async openBelow({ imagePath, layerPaths }: DiskChain): Promise<string | null> {
    const lower = layerPaths.slice(0, -1);
    const graph = chainOptions(imagePath, lower);
    if (graph !== null && !this.#isBelowOpen) await this.#add(graph);
    this.#isBelowOpen = true;
    const highest = lower.at(-1);
    if (highest !== undefined) return layerNode(highest);
    return imagePath === null ? null : IMAGE_NODE;
  }

  async attach(chain: DiskChain): Promise<void> {
    const { imagePath, layerPaths } = chain;
    if (imagePath === null && layerPaths.length === 0) return;
    if (layerPaths.length === 0) {
      throw new PerdureError("machine_failed", "Cannot attach a disk that has no layer to write");
    }
    if (layerPaths.length > qemuLimits.layersMax) {
      throw new PerdureError(
        "machine_failed",
        `Cannot attach ${layerPaths.length} disk layers; ${qemuLimits.layersMax} is the limit`,
      );
    }
    if ((await this.#known()).length > 0) {
      throw new PerdureError("machine_failed", "Cannot attach a disk: the machine has one");
    }
    await this.#notes.writeLayers(layerPaths);
    const backing = await this.openBelow(chain);
    const top = layerPaths.at(-1) ?? "";
    await this.#add(topOptions(top, backing));
    await this.#qmp.execute("blockdev-reopen", {
      options: [
        {
          driver: "throttle",
          "node-name": node.throttle,
          "throttle-group": node.throttleGroup,
          file: layerNode(top),
          discard: "unmap",
        },
      ],
    });
    this.#layers = [...layerPaths];
  }

  get prepared(): string | null {
    return this.#prepared;
  }

  /** Opens an empty layer, so that `addLayer` only has to put it on top. */
  async prepareLayer(path: string): Promise<void> {
    const layers = await this.#known();
    if (layers.length === 0) {
      throw new PerdureError("machine_failed", "Cannot add a layer: the machine has no disk");
    }
    await this.#dropPrepared();
    await this.#notes.writeLayers([...layers, path]);
    try {
      await this.#add(topOptions(path, null));
    } catch (error) {
      // It may be carried out yet.
      this.#layers = null;
      throw error;
    }
    this.#prepared = path;
  }

  /** Puts an empty layer on top. While paused. */
  async addLayer(path: string): Promise<void> {
    if (this.#prepared !== path) await this.prepareLayer(path);
    const layers = await this.#known();
    const top = layers.at(-1) ?? "";
    try {
      await this.#qmp.execute("blockdev-snapshot", {
        node: layerNode(top),
        overlay: layerNode(path),
      });
    } catch (error) {
      await this.#dropPrepared();
      this.#layers = null;
      throw error;
    }
    this.#prepared = null;
    this.#layers = [...layers, path];
  }

  /** Copies the layers between `below` and `top` into `top`, which must be the one that is written. */
  async mergeLayers(below: string, top: string): Promise<void> {
    const layers = await this.#known();
    const kept = layers.indexOf(below) + 1;
    if (kept === 0 || top !== layers.at(-1)) {
      throw new PerdureError("machine_failed", `"${below}" and "${top}" are not layers to merge`);
    }
    const between = layers.slice(kept, -1);
    if (between.length === 0) return;
    await this.#streamInto(top, below);
    // The top no longer refers to them; from the highest down none is another's backing.
    for (const path of between.reverse()) await this.#remove(path);
    this.#layers = [...layers.slice(0, kept), top];
    await this.#notes.writeLayers(this.#layers);
  }

  /** A resize tells the guest of its disk's size, whatever that was. */
  async grow(bytes: number): Promise<void> {
    const nowBytes = await this.#sizeBytes();
    if (nowBytes === null || bytes < nowBytes) {
      const now = nowBytes === null ? "the machine has none" : `it has ${nowBytes} already`;
      throw new PerdureError("machine_failed", `Cannot make a disk of ${bytes} bytes: ${now}`);
    }
    await this.#qmp.execute("block_resize", { "node-name": node.throttle, size: bytes });
  }

  async #sizeBytes(): Promise<number | null> {
    const top = await this.topPath();
    if (top === null) return null;
    const nodes = await this.#qmp.execute("query-named-block-nodes", { flat: true });
    for (const entry of Array.isArray(nodes) ? (nodes as unknown[]) : []) {
      if (!isRecord(entry) || entry["node-name"] !== layerNode(top)) continue;
      const bytes = isRecord(entry.image) ? entry.image["virtual-size"] : null;
      return typeof bytes === "number" ? bytes : null;
    }
    return null;
  }

  async #dropPrepared(): Promise<void> {
    const path = this.#prepared;
    this.#prepared = null;
    if (path !== null) await this.#remove(path);
  }

  async #streamInto(top: string, below: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const undo = this.#qmp.onEvent(({ name, data }) => {
      if (data.device !== MERGE_JOB) return;
      const failed = typeof data.error === "string" ? data.error : name;
      if (name === "BLOCK_JOB_COMPLETED" && data.error === undefined) resolve(undefined);
      else if (name === "BLOCK_JOB_COMPLETED" || name === "BLOCK_JOB_CANCELLED") {
        reject(new PerdureError("machine_failed", `Merging disk layers failed: ${failed}`));
      }
    });
    void this.#qmp.ended.then(({ detail }) =>
      reject(new PerdureError("machine_failed", `The monitor is closed: ${detail}`)),
    );
    // Where the job does not even begin nobody waits for its end.
    promise.catch(() => undefined);
    const over = new AbortController();
    try {
      await this.#qmp.execute("block-stream", {
        "job-id": MERGE_JOB,
        device: layerNode(top),
        "base-node": layerNode(below),
        // A name in the layer would be that of a file of this host; nobody opens a layer by it.
        "backing-file": "",
      });
      await withDeadline(
        this.#clock,
        MERGE_DEADLINE_MS,
        "Merging disk layers",
        Promise.race([promise, this.#untilSilent(over.signal)]),
      );
    } finally {
      undo();
      over.abort();
    }
  }

  /** Rejects when the process does not answer any more: its job would never end, and not fail either. */
  async #untilSilent(stop: AbortSignal): Promise<never> {
    for (;;) {
      await this.#clock.wait(qemuLimits.jobLookMs, stop);
      await this.#qmp.execute("query-status");
    }
  }

  /** A daemon may have died, or met an error, while it added a layer: one that nothing uses yet is taken away again. */
  async #known(): Promise<string[]> {
    if (this.#layers !== null) return this.#layers;
    const layers = await this.#notes.readLayers();
    for (let top = layers.at(-1); top !== undefined; top = layers.at(-1)) {
      if (!(await this.#isLoose(top))) break;
      layers.pop();
    }
    this.#layers = layers;
    return layers;
  }

  async #isLoose(path: string): Promise<boolean> {
    const nodes = await this.#qmp.execute("query-named-block-nodes", { flat: true });
    const exists = (Array.isArray(nodes) ? (nodes as unknown[]) : []).some(
      (entry) => isRecord(entry) && entry["node-name"] === layerNode(path),
    );
    return !exists || (await this.#remove(path));
  }

  /** False where the node is in use. */
  async #remove(path: string): Promise<boolean> {
    return this.#qmp.execute("blockdev-del", { "node-name": layerNode(path) }).then(
      () => true,
      () => false,
    );
  }

  async #add(options: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#qmp.execute("blockdev-add", options);
  }
}

/**
 * A chain that is only read, as one nested description. What QEMU takes for granted is left out: the
 * monitor reads a command byte by byte, at about 4 µs each. Backing nodes and their files are read-only.
 */
function chainOptions(
  imagePath: string | null,
  layerPaths: readonly string[],
): Record<string, unknown> | null {
  let below: Record<string, unknown> | null =
    imagePath === null ? null : { driver: "raw", "node-name": IMAGE_NODE, file: fileOf(imagePath) };
  for (const path of layerPaths) below = layerOptions(path, below);
  return below === null ? null : { ...below, "read-only": true };
}

/**
 * The layer that is written. Once covered it is sealed for everybody, and the next snapshot opens its
 * file once more: that it may then be had read-only alone is `auto-read-only`. A top that cannot be
 * written is never attached.
 */
function topOptions(path: string, backing: string | null): Record<string, unknown> {
  return { ...layerOptions(path, backing), "auto-read-only": true, discard: "unmap" };
}

function layerOptions(
  path: string,
  backing: Record<string, unknown> | string | null,
): Record<string, unknown> {
  return { driver: "qcow2", "node-name": layerNode(path), file: fileOf(path), backing };
}

function fileOf(path: string): Record<string, unknown> {
  return { driver: "file", filename: path };
}
