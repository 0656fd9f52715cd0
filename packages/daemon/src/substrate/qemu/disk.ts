/**
 * The disk: a chain of files behind a throttle node that the guest's disk device never lets go of.
 *
 * - I1 The graph is written out: every node names its backing node or none, whatever the files say.
 * - I2 Only the top is opened for writing, and QEMU's locks on files stay on: a second process that
 *   writes the same layer is refused.
 * - I3 Freed blocks become holes in the top (`discard=unmap`). Writes are not searched for zeroes: that
 *   costs a look at every byte and finds little that the guest did not discard.
 */
import { PerdureError } from "@perdure/protocol";
import type { DiskChain } from "../../core/ports/substrate.ts";
import { node } from "./command-line.ts";
import { qemuLimits } from "./limit.ts";
import { isRecord, type QmpClient } from "./qmp.ts";

/** Keeps the files of a machine's layers, by number, for a later daemon. QEMU's word is not taken. */
export interface LayerNotes {
  writeLayers(paths: readonly string[]): Promise<void>;
  readLayers(): Promise<string[]>;
}

const layerNode = (number: number): string => `layer${number}`;

export class Disk {
  readonly #qmp: QmpClient;
  readonly #notes: LayerNotes;
  /** Files of the layers, lowest first; null: known to an earlier daemon. */
  #layers: string[] | null;

  /** @param attached `empty` for a process that was just started */
  constructor(qmp: QmpClient, notes: LayerNotes, attached: "empty" | "unknown") {
    this.#qmp = qmp;
    this.#notes = notes;
    this.#layers = attached === "empty" ? [] : null;
  }

  /** Path of the layer that is written now, null where no disk is attached. */
  async topPath(): Promise<string | null> {
    return (await this.#known()).at(-1) ?? null;
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
    let below: string | null = null;
    if (imagePath !== null) {
      below = "image";
      await this.#add({
        driver: "raw",
        "node-name": below,
        ...access(true),
        file: fileOf(imagePath, `${below}-file`, true),
      });
    }
    for (const [number, path] of layerPaths.entries()) {
      await this.#add(layerOptions(number, path, below, number < layerPaths.length - 1));
      below = layerNode(number);
    }
    await this.#qmp.execute("blockdev-reopen", {
      options: [
        {
          driver: "throttle",
          "node-name": node.throttle,
          "throttle-group": node.throttleGroup,
          file: below,
          discard: "unmap",
        },
      ],
    });
    this.#layers = [...layerPaths];
  }

  /** Puts an empty layer on top. While paused. */
  async addLayer(path: string): Promise<void> {
    const layers = await this.#known();
    const number = layers.length;
    if (number === 0) {
      throw new PerdureError("machine_failed", "Cannot add a layer: the machine has no disk");
    }
    await this.#notes.writeLayers([...layers, path]);
    await this.#add(layerOptions(number, path, null, false));
    try {
      await this.#qmp.execute("blockdev-snapshot", {
        node: layerNode(number - 1),
        overlay: layerNode(number),
      });
    } catch (error) {
      await this.#remove(number);
      throw error;
    }
    this.#layers = [...layers, path];
  }

  /** A daemon may have died while it added a layer: one that nothing uses yet is taken away again. */
  async #known(): Promise<string[]> {
    if (this.#layers !== null) return this.#layers;
    const layers = await this.#notes.readLayers();
    while (layers.length > 0 && (await this.#isLoose(layers.length - 1))) layers.pop();
    this.#layers = layers;
    return layers;
  }

  async #isLoose(number: number): Promise<boolean> {
    const nodes = await this.#qmp.execute("query-named-block-nodes", { flat: true });
    const exists = (Array.isArray(nodes) ? (nodes as unknown[]) : []).some(
      (entry) => isRecord(entry) && entry["node-name"] === layerNode(number),
    );
    return !exists || (await this.#remove(number));
  }

  /** False where the node is in use. */
  async #remove(number: number): Promise<boolean> {
    return this.#qmp.execute("blockdev-del", { "node-name": layerNode(number) }).then(
      () => true,
      () => false,
    );
  }

  async #add(options: Readonly<Record<string, unknown>>): Promise<void> {
    await this.#qmp.execute("blockdev-add", options);
  }
}

function layerOptions(
  number: number,
  path: string,
  backing: string | null,
  readOnly: boolean,
): Record<string, unknown> {
  return {
    driver: "qcow2",
    "node-name": layerNode(number),
    ...access(readOnly),
    file: fileOf(path, `${layerNode(number)}-file`, readOnly),
    backing,
  };
}

function fileOf(path: string, name: string, readOnly: boolean): Record<string, unknown> {
  return { driver: "file", "node-name": name, filename: path, ...access(readOnly) };
}

function access(readOnly: boolean): Record<string, unknown> {
  return { "read-only": readOnly, "auto-read-only": false, discard: "unmap" };
}
