/** Output of one fake process: head and tail, with one range cut out between once it is too long. */
export interface FakeLogState {
  readonly limit: number;
  /** Held pieces in order of offset, bytes as base64. */
  pieces: { readonly channel: 1 | 2; readonly offset: number; readonly content: string }[];
  end: number;
}

export interface FakePiece {
  readonly channel: 0 | 1 | 2;
  readonly offset: number;
  /** The bytes; of a cut, none. */
  readonly bytes: Buffer;
  readonly end: number;
}

export class FakeLog {
  readonly state: FakeLogState;

  constructor(state: FakeLogState) {
    this.state = state;
  }

  get limit(): number {
    return this.state.limit;
  }

  get end(): number {
    return this.state.end;
  }

  /** First offset that is held in full from there on. */
  get start(): number {
    let start = this.end;
    for (const piece of this.state.pieces.toReversed()) {
      if (piece.offset + lengthOf(piece.content) !== start) break;
      start = piece.offset;
    }
    return start;
  }

  write(channel: 1 | 2, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const content = Buffer.from(bytes).toString("base64");
    this.state.pieces.push({ channel, offset: this.state.end, content });
    this.state.end += bytes.length;
    const headEnd = this.limit / 4;
    let held = this.state.pieces.reduce((sum, piece) => sum + lengthOf(piece.content), 0);
    while (held > this.limit) {
      const index = this.state.pieces.findIndex((piece) => piece.offset >= headEnd);
      const [gone] = this.state.pieces.splice(Math.max(index, 0), 1);
      if (gone === undefined) return;
      held -= lengthOf(gone.content);
    }
  }

  /** What a reader at `offset` gets next, at most `max` bytes; undefined at the end. */
  read(offset: number, max: number): FakePiece | undefined {
    for (const piece of this.state.pieces) {
      if (piece.offset + lengthOf(piece.content) <= offset) continue;
      if (piece.offset > offset) {
        return { channel: 0, offset, bytes: Buffer.alloc(0), end: piece.offset };
      }
      const from = offset - piece.offset;
      const bytes = Buffer.from(piece.content, "base64").subarray(from, from + max);
      return { channel: piece.channel, offset, bytes, end: offset + bytes.length };
    }
    return undefined;
  }
}

function lengthOf(base64: string): number {
  return Buffer.byteLength(base64, "base64");
}
