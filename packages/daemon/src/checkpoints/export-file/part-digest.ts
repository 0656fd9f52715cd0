/** The digest of a part, block by block as it passes, held at its end against what it must be. */
import { createHash } from "node:crypto";
import type { Digest } from "@perdure/protocol";
import { BLOCK_BYTES, blockDigest, contentDigest } from "../content-digest.ts";
import type { ExportPart } from "./part.ts";

const zeros = Buffer.alloc(BLOCK_BYTES);

export class PartDigest {
  readonly #part: ExportPart;
  readonly #hash = createHash("sha256");
  readonly #blocks: Uint8Array[] = [];

  constructor(part: ExportPart) {
    this.#part = part;
  }

  /** Each block in turn: 1 MiB, the last may be shorter; a number: so many zeros. */
  add(block: Uint8Array | number): void {
    const { by } = this.#part.check;
    const content = typeof block === "number" ? zeros.subarray(0, block) : block;
    if (by === "sha256") this.#hash.update(content);
    if (by === "blocks") this.#blocks.push(blockDigest(content));
  }

  /** Whether all that was added is what the part must be. Once. */
  isRight(): boolean {
    const { check, bytes } = this.#part;
    switch (check.by) {
      case "pages":
      case "use":
        return true;
      case "sha256":
        return (this.#hash.digest("hex") as Digest) === check.digest;
      case "blocks":
        return contentDigest(bytes, this.#blocks) === check.digest;
    }
  }
}

export const PART_BLOCK_BYTES = BLOCK_BYTES;
