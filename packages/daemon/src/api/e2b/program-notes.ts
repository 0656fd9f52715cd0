/**
 * What clients said of the programs that they started and want to be told again: the tag by which they call them,
 * their variables and folder, and whether they are on a terminal. In memory, but for what a program itself has of it:
 * its tag is a variable of its own, so that it is known after a restart of the daemon, and in a fork.
 */
import type { ProcessView } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";
import { isRefused } from "./inside-path.ts";

export interface ProgramNote {
  readonly tag: string | null;
  readonly envs: Readonly<Record<string, string>>;
  readonly cwd: string | null;
  readonly isTerminal: boolean;
}

export type Noted = Pick<ProcessView, "process" | "pid">;

const NOTES_MAX = 10_000;
const TAG_VARIABLE = "E2B_PROCESS_TAG";
const ENVIRONMENT_BYTES_MAX = 256 * 1024;

export function tagVariable(tag: string | null): Readonly<Record<string, string>> {
  return tag === null ? {} : { [TAG_VARIABLE]: tag };
}

type Looking = Pick<Commands, "listFolder" | "readFile">;

export class ProgramNotes {
  readonly #commands: Looking;
  readonly #notes = new Map<string, ProgramNote>();

  constructor(commands: Looking) {
    this.#commands = commands;
  }

  set({ agent }: Target, program: Noted, note: ProgramNote): void {
    this.#notes.set(keyOf(agent, program), note);
    for (const oldest of this.#notes.keys()) {
      if (this.#notes.size <= NOTES_MAX) break;
      this.#notes.delete(oldest);
    }
  }

  /** Of one that another daemon started, or a fork's: what can be seen of it. */
  async of(target: Target, program: Noted): Promise<ProgramNote> {
    const known = this.#notes.get(keyOf(target.agent, program));
    if (known !== undefined) return known;
    const [tag, isTerminal] = await Promise.all([
      this.#tagOf(target, program.pid),
      this.#isOnTerminal(target, program.pid),
    ]);
    const note = { tag, envs: {}, cwd: null, isTerminal };
    this.set(target, program, note);
    return note;
  }

  async #tagOf(target: Target, pid: number): Promise<string | null> {
    const range = { offset: 0, length: ENVIRONMENT_BYTES_MAX };
    const wanted = { ...target, path: `/proc/${pid}/environ`, user: "0", range };
    const read = async (): Promise<string | null> => {
      const { bytes } = await this.#commands.readFile(wanted);
      const text = Buffer.concat(await Array.fromAsync(bytes)).toString();
      const begin = `${TAG_VARIABLE}=`;
      const found = text.split("\0").find((variable) => variable.startsWith(begin));
      return found?.slice(begin.length) ?? null;
    };
    return orNull(read());
  }

  /** Where its input comes from. */
  async #isOnTerminal(target: Target, pid: number): Promise<boolean> {
    const look = async (): Promise<boolean> => {
      const folder = { ...target, path: `/proc/${pid}/fd`, user: "0" };
      for await (const { name, linkTarget } of await this.#commands.listFolder(folder)) {
        if (name === "0") return linkTarget?.startsWith("/dev/pts/") === true;
      }
      return false;
    };
    return (await orNull(look())) ?? false;
  }
}

function keyOf(agent: string, { process, pid }: Noted): string {
  return `${agent} ${process} ${pid}`;
}

/** Null where it has ended. */
async function orNull<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if (isRefused(error, "path_not_found", "path_denied", "guest_error")) return null;
    throw error;
  }
}
