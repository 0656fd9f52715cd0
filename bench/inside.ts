/** Programs inside a VM, whichever side runs it: what a benchmark does to both in the same way. */

export type Piece =
  | { readonly type: "output"; readonly offset: number; readonly bytes: Uint8Array }
  | { readonly type: "cut" }
  | { readonly type: "exit"; readonly exitCode: number | null }
  | { readonly type: "interrupted"; readonly reason: string };

export interface Program {
  /** What it wrote, from byte `offset` on, both streams together. Leaving the loop detaches. */
  output(offset: number): AsyncIterable<Piece>;
  signal(number: number): Promise<void>;
}

export interface Inside {
  /** Starts a program as the ordinary user. */
  start(argv: readonly string[]): Promise<Program>;
}

/** Runs a program to its end. @throws where it does not end with 0 */
export async function run(inside: Inside, argv: readonly string[]): Promise<string> {
  const program = await inside.start(argv);
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of program.output(0)) {
    if (piece.type === "output") text += decoder.decode(piece.bytes, { stream: true });
    if (piece.type === "interrupted") throw new Error(`${argv.join(" ")}: ${piece.reason}`);
    if (piece.type !== "exit") continue;
    if (piece.exitCode === 0) return text;
    throw new Error(`${argv.join(" ")} ended with ${piece.exitCode ?? "a signal"}: ${text}`);
  }
  throw new Error(`${argv.join(" ")} never ended`);
}

export interface Line {
  readonly text: string;
  /** Where the output goes on. */
  readonly next: number;
}

/** The first text from `offset` on that matches `pattern`; the program goes on. */
export async function readUntil(program: Program, pattern: RegExp, offset = 0): Promise<Line> {
  let text = "";
  for await (const piece of program.output(offset)) {
    if (piece.type === "exit") throw new Error(`The program ended early: ${text}`);
    if (piece.type === "interrupted") throw new Error(`Interrupted: ${piece.reason}`);
    if (piece.type !== "output") continue;
    text += Buffer.from(piece.bytes).toString("utf8");
    const found = pattern.exec(text);
    if (found !== null) return { text: found[0], next: piece.offset + piece.bytes.length };
  }
  throw new Error(`The output ended early: ${text}`);
}

/**
 * Programs that every guest runs once before anything is measured. A new agent comes from a template in
 * which they ran; the stock guest, too, has their files in its page cache.
 */
export const warmUp: readonly (readonly string[])[] = [
  ["/bin/bash", "-lc", "true"],
  ["/usr/bin/python3", "-c", "import json, sqlite3, subprocess, socket, http.server"],
  ["/usr/bin/git", "--version"],
  ["/usr/bin/curl", "--version"],
  ["/usr/bin/sqlite3", "-version"],
];
