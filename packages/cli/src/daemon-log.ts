/** The log of a daemon in the background: begun by who starts it, read where the start fails. */
import { fstatSync, openSync, readFileSync, writeSync } from "node:fs";
import { isErrorCode, PerdureError } from "@perdure/protocol";

const TAIL_CHARACTERS = 2000;

export interface BegunLog {
  readonly path: string;
  readonly descriptor: number;
  /** Where the words of this start begin; undefined where the disk has no room for them. */
  readonly begin: number | undefined;
}

/** A full disk is no reason not to start: the daemon can still remove agents. */
export function beginLog(path: string): BegunLog {
  const descriptor = openSync(path, "a", 0o600);
  const line = { at: new Date().toISOString(), level: "info", message: "Starting" };
  try {
    writeSync(descriptor, `${JSON.stringify(line)}\n`);
    return { path, descriptor, begin: fstatSync(descriptor).size };
  } catch {
    return { path, descriptor, begin: undefined };
  }
}

/** What the daemon said at its end, in its own code where it gave one. */
export function startFailure({ path, begin }: BegunLog): PerdureError {
  if (begin === undefined) {
    const message = "Cannot start the daemon: it ended, and the disk has no room for what it said";
    const hint = "Free some space on that disk; `perdure serve` runs it in the foreground.";
    return new PerdureError("disk_full", message, { hint });
  }
  const look = `Its log is "${path}"; \`perdure serve\` runs it in the foreground.`;
  const said = readFileSync(path).subarray(begin).toString().trimEnd();
  const [, message = "", code, hint] = lastWords.exec(said) ?? [];
  if (isErrorCode(code)) {
    return new PerdureError(code, `Cannot start the daemon: ${message}`, { hint: hint ?? look });
  }
  const tail = said === "" ? "it said nothing" : said.slice(-TAIL_CHARACTERS);
  return new PerdureError("daemon_unreachable", `Cannot start the daemon: ${tail}`, { hint: look });
}

/** As `perdured` writes them. */
const lastWords = /(?:^|\n)perdured: (.+) \((\w+)\)(?:\nHint: (.+))?$/;
