/** For tests: a program on a terminal of this host, that is typed on, read, and resized. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import type { Writable } from "node:stream";

const program = join(import.meta.dirname, "terminal.py");

export class Typist {
  /** All that was shown so far. */
  shown = "";
  /** Resolves with the program's exit code. */
  readonly ended: Promise<number | null>;
  readonly #child: ChildProcess;
  #changed = Promise.withResolvers<undefined>();
  #isOver = false;

  constructor(argv: readonly string[], env: NodeJS.ProcessEnv, size = [24, 80]) {
    this.#child = spawn("python3", [program, ...size.map(String), ...argv], {
      env,
      stdio: ["pipe", "pipe", "inherit", "pipe"],
    });
    for (const stream of [this.#child.stdin, this.#child.stdio[3]]) {
      stream?.on("error", () => undefined);
    }
    this.#child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      this.shown += chunk;
      this.#notify();
    });
    this.ended = new Promise((resolve) => {
      this.#child.once("close", (code) => {
        this.#isOver = true;
        resolve(code);
        this.#notify();
      });
    });
  }

  type(keys: string): void {
    this.#child.stdin?.write(keys);
  }

  resize(rows: number, columns: number): void {
    (this.#child.stdio[3] as Writable).write(`${rows} ${columns}\n`);
  }

  /** As if the window was closed, and to whoever runs in it. */
  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Resolves with the match, once what is shown has one. @throws where the program ended without */
  async until(wanted: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const found = wanted.exec(this.shown);
      if (found !== null) return found;
      if (this.#isOver) {
        throw new Error(`Ended without ${String(wanted)}:\n${this.shown}`);
      }
      await this.#changed.promise;
    }
  }

  #notify(): void {
    this.#changed.resolve(undefined);
    this.#changed = Promise.withResolvers();
  }
}
