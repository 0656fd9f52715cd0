/**
 * First in, first out, for pieces of bytes. They are copied into blocks one after another, so that a
 * million pieces of one byte take the memory of their bytes and not of a million objects.
 */
const BLOCK_BYTES_MIN = 16 * 1024;
const LENGTH_BYTES = 4;

interface Block {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  end: number;
}

export class PieceQueue {
  readonly #blocks: Block[] = [];
  #readAt = 0;
  #pieces = 0;

  get pieces(): number {
    return this.#pieces;
  }

  push(piece: Uint8Array): void {
    const needed = LENGTH_BYTES + piece.length;
    let block = this.#blocks.at(-1);
    if (block === undefined || block.bytes.length - block.end < needed) {
      const bytes = new Uint8Array(Math.max(BLOCK_BYTES_MIN, needed));
      block = { bytes, view: new DataView(bytes.buffer), end: 0 };
      this.#blocks.push(block);
    }
    block.view.setUint32(block.end, piece.length, true);
    block.bytes.set(piece, block.end + LENGTH_BYTES);
    block.end += needed;
    this.#pieces++;
  }

  /** The oldest piece, copied; undefined where there is none. */
  shift(): Uint8Array | undefined {
    const block = this.#blocks[0];
    if (block === undefined) return undefined;
    const from = this.#readAt + LENGTH_BYTES;
    const piece = block.bytes.slice(from, from + block.view.getUint32(this.#readAt, true));
    this.#readAt = from + piece.length;
    this.#pieces--;
    if (this.#readAt === block.end) {
      this.#blocks.shift();
      this.#readAt = 0;
    }
    return piece;
  }

  clear(): void {
    this.#blocks.length = 0;
    this.#readAt = 0;
    this.#pieces = 0;
  }
}
