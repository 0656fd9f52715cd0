/**
 * What clients said of the programs that they started and want to be told again: the tag by which they call them,
 * their variables and folder, and whether they are on a terminal. In memory: a daemon that starts again knows programs by their pids alone.
 */
export interface ProgramNote {
  readonly tag: string | null;
  readonly envs: Readonly<Record<string, string>>;
  readonly cwd: string | null;
  readonly isTerminal: boolean;
}

const NOTES_MAX = 10_000;

export class ProgramNotes {
  readonly #notes = new Map<string, ProgramNote>();

  set(agent: string, process: number, note: ProgramNote): void {
    this.#notes.set(`${agent} ${process}`, note);
    for (const oldest of this.#notes.keys()) {
      if (this.#notes.size <= NOTES_MAX) break;
      this.#notes.delete(oldest);
    }
  }

  of(agent: string, process: number): ProgramNote | null {
    return this.#notes.get(`${agent} ${process}`) ?? null;
  }
}
