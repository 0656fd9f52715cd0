/**
 * What a benchmark must undo, whatever ends it: the end, an error, or a signal.
 *
 * Undone newest first, each with a deadline, each even where another failed. A second signal ends the
 * process at once; what it started is then killed as the process exits.
 */
import { setTimeout as sleep } from "node:timers/promises";

const UNDO_MS = 30_000;
const signals = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;

type Undo = () => void | Promise<void>;

export class Cleanup {
  readonly #undos = new Map<number, { what: string; undo: Undo }>();
  readonly #atExit: Set<() => void>;
  readonly #report: (text: string) => void;
  #next = 0;
  #running: Promise<void> | null = null;

  constructor(report: (text: string) => void, atExit = new Set<() => void>()) {
    this.#report = report;
    this.#atExit = atExit;
  }

  /** What is added to the scope is undone when `work` ends, however it ends, or with the rest of us. */
  async scope<T>(what: string, work: (scope: Cleanup) => Promise<T>): Promise<T> {
    const scope = new Cleanup(this.#report, this.#atExit);
    const end = this.add(what, () => scope.run());
    try {
      return await work(scope);
    } finally {
      await end();
    }
  }

  /** Will run `undo` at the end, unless the function that this returns was called before. */
  add(what: string, undo: Undo): () => Promise<void> {
    const key = this.#next++;
    this.#undos.set(key, { what, undo });
    return async () => {
      if (this.#undos.delete(key)) await undo();
    };
  }

  /** Will run `last` as the process exits, also after an impatient second signal. */
  addAtExit(last: () => void): () => void {
    this.#atExit.add(last);
    return () => this.#atExit.delete(last);
  }

  /** Listens for signals that end a program, until the process ends. */
  listen(): void {
    process.on("exit", () => {
      for (const last of this.#atExit) last();
    });
    for (const [name, code] of Object.entries(signals)) {
      process.on(name, () => {
        if (this.#running !== null) process.exit(code);
        this.#report(`${name}: clearing up; once more to stop at once`);
        void this.run().finally(() => process.exit(code));
      });
    }
  }

  /** Undoes everything. Never rejects. */
  run(): Promise<void> {
    this.#running ??= this.#undoAll().finally(() => (this.#running = null));
    return this.#running;
  }

  async #undoAll(): Promise<void> {
    for (;;) {
      const newest = [...this.#undos.entries()].at(-1);
      if (newest === undefined) return;
      const [key, { what, undo }] = newest;
      this.#undos.delete(key);
      try {
        await withDeadline(Promise.resolve().then(undo));
      } catch (error) {
        this.#report(`Cannot undo "${what}": ${error instanceof Error ? error.message : "?"}`);
      }
    }
  }
}

async function withDeadline(work: Promise<void>): Promise<void> {
  const stop = new AbortController();
  const late = sleep(UNDO_MS, undefined, { signal: stop.signal }).then(() => {
    throw new Error(`not done within ${UNDO_MS / 1000} s`);
  });
  late.catch(() => undefined);
  await Promise.race([work, late]).finally(() => stop.abort());
}
