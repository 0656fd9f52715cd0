/** The log of a daemon in the background: begun by who starts it, read where the start fails. */
import { closeSync, fstatSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { isErrorCode, PerdureError } from "@perdure/protocol";

const TAIL_CHARACTERS = 2000;

export interface BegunLog {
  readonly path: string;
  readonly descriptor: number;
  /** Where the words of this start begin. */
  readonly begin: number;
}

/** A first line that does not fit says at once that the disk is full; the daemon itself could not. */
export function beginLog(path: string): BegunLog {
  const descriptor = openSync(path, "a", 0o600);
  try {
    const line = { at: new Date().toISOString(), level: "info", message: "Starting" };
    writeSync(descriptor, `${JSON.stringify(line)}\n`);
    return { path, descriptor, begin: fstatSync(descriptor).size };
  } catch (error) {
    const facts = fstatSync(descriptor);
    closeSync(descriptor);
    if (facts.isFile() && facts.size === 0) rmSync(path);
    throw error;
  }
}

/** What the daemon said at its end, in its own code where it gave one. */
export function startFailure({ path, begin }: BegunLog): PerdureError {
  const said = readFileSync(path).subarray(begin).toString().trimEnd();
  const [, message = "", code, hint] = lastWords.exec(said) ?? [];
  const look = `Its log is "${path}"; \`perdure daemon\` runs it in the foreground.`;
  if (isErrorCode(code)) {
    return new PerdureError(code, `Cannot start the daemon: ${message}`, { hint: hint ?? look });
  }
  const tail = said === "" ? "it said nothing" : said.slice(-TAIL_CHARACTERS);
  return new PerdureError("daemon_unreachable", `Cannot start the daemon: ${tail}`, { hint: look });
}

/** As `perdured` writes them. */
const lastWords = /(?:^|\n)perdured: (.+) \((\w+)\)(?:\nHint: (.+))?$/;
