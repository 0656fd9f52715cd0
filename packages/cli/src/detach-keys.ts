/** Ctrl-P Ctrl-Q among what is typed. A Ctrl-P is held until it is known what follows. */
const CTRL_P = 0x10;
const CTRL_Q = 0x11;

export interface Typed {
  /** What the program is to get. */
  readonly bytes: Uint8Array;
  /** The keys were typed: nothing behind them counts. */
  readonly detached: boolean;
}

/** Of one terminal: remembers a Ctrl-P from one piece to the next. */
export function createDetachKeys(): (piece: Uint8Array) => Typed {
  let held = false;
  return (piece) => {
    const bytes: number[] = [];
    for (const byte of piece) {
      if (held && byte === CTRL_Q) return { bytes: Uint8Array.from(bytes), detached: true };
      if (held) bytes.push(CTRL_P);
      held = byte === CTRL_P;
      if (!held) bytes.push(byte);
    }
    return { bytes: Uint8Array.from(bytes), detached: false };
  };
}
