/** The file that a part is written to, with holes where there are zeros; or nothing, where it is compared only. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import { FILE_MODE } from "../durable.ts";
import { assertPlainLayer, LAYER_HEADER_BYTES } from "./layer-header.ts";
import type { ExportPart } from "./part.ts";

export class ImportTarget {
  readonly #file: FileHandle | null;
  readonly #part: ExportPart;

  private constructor(file: FileHandle | null, part: ExportPart) {
    this.#file = file;
    this.#part = part;
  }

  /** @param path of a file that does not exist; null: nothing is stored */
  static async open(path: string | null, part: ExportPart): Promise<ImportTarget> {
    if (path === null) return new ImportTarget(null, part);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    return new ImportTarget(await open(path, flags, FILE_MODE), part);
  }

  /** @param block null: zeros. @throws `export_invalid` for a layer that is none as Perdure makes them */
  async write(block: Uint8Array | null, offset: number): Promise<void> {
    if (offset === 0 && this.#part.kind === "layer") {
      assertPlainLayer((block ?? new Uint8Array()).subarray(0, LAYER_HEADER_BYTES));
    }
    if (block === null || this.#file === null) return;
    for (let done = 0; done < block.length;) {
      const rest = block.length - done;
      const { bytesWritten } = await this.#file.write(block, done, rest, offset + done);
      done += bytesWritten;
    }
  }

  /** Gives the file its length, and makes its content durable. */
  async finish(): Promise<void> {
    await this.#file?.truncate(this.#part.bytes);
    await this.#file?.sync();
  }

  async close(): Promise<void> {
    await this.#file?.close();
  }
}
