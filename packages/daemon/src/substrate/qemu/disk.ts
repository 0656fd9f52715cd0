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

interface Top {
  readonly number: number;
  readonly path: string;
}

const layerNode = (number: number): string => `layer${number}`;

export class Disk {
  readonly #qmp: QmpClient;
  #top: Top | null | undefined;

  /** @param attached false for a process that was just started: its disk is empty */
  constructor(qmp: QmpClient, attached: "empty" | "unknown") {
    this.#qmp = qmp;
    this.#top = attached === "empty" ? null : undefined;
  }

  /** Path of the layer that is written now, null where no disk is attached. */
  async topPath(): Promise<string | null> {
    return (await this.#current())?.path ?? null;
  }

  async attach(chain: DiskChain): Promise<void> {
    const { imagePath, layerPaths } = chain;
    if (imagePath === null && layerPaths.length === 0) return;
    const topPath = layerPaths.at(-1);
    if (topPath === undefined) {
      throw new PerdureError("machine_failed", "Cannot attach a disk that has no layer to write");
    }
    if (layerPaths.length > qemuLimits.layersMax) {
      throw new PerdureError(
        "machine_failed",
        `Cannot attach ${layerPaths.length} disk layers; ${qemuLimits.layersMax} is the limit`,
      );
    }
    if ((await this.#current()) !== null) {
      throw new PerdureError("machine_failed", "Cannot attach a disk: the machine has one");
    }
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
    this.#top = { number: layerPaths.length - 1, path: topPath };
  }

  /** Puts an empty layer on top. While paused. */
  async addLayer(path: string): Promise<void> {
    const top = await this.#current();
    if (top === null) {
      throw new PerdureError("machine_failed", "Cannot add a layer: the machine has no disk");
    }
    const number = top.number + 1;
    await this.#add(layerOptions(number, path, null, false));
    try {
      await this.#qmp.execute("blockdev-snapshot", {
        node: layerNode(top.number),
        overlay: layerNode(number),
      });
    } catch (error) {
      await this.#qmp
        .execute("blockdev-del", { "node-name": layerNode(number) })
        .catch(() => undefined);
      throw error;
    }
    this.#top = { number, path };
  }

  /** After adoption the names of nodes say which layer is the top. */
  async #current(): Promise<Top | null> {
    if (this.#top !== undefined) return this.#top;
    const nodes = await this.#qmp.execute("query-named-block-nodes", { flat: true });
    let top: Top | null = null;
    for (const entry of Array.isArray(nodes) ? (nodes as unknown[]) : []) {
      if (!isRecord(entry) || typeof entry["node-name"] !== "string") continue;
      const number = /^layer(\d+)$/.exec(entry["node-name"])?.[1];
      if (number === undefined || typeof entry.file !== "string") continue;
      if (top === null || Number(number) > top.number)
        top = { number: Number(number), path: entry.file };
    }
    this.#top = top;
    return top;
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
