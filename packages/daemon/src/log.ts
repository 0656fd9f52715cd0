/** The daemon's log: one JSON object per line on stderr. */
import type { Log, LogLevel } from "./core/ports/log.ts";

const order: readonly LogLevel[] = ["debug", "info", "warn", "error"];

export function createLog(least: LogLevel, write: (line: string) => void): Log {
  return (level, message, facts = {}) => {
    if (order.indexOf(level) < order.indexOf(least)) return;
    // A fact called `message` is the message of what went wrong.
    const { message: wrong, ...others } = facts;
    const cause = wrong === undefined ? {} : { cause: wrong };
    const line = { at: new Date().toISOString(), level, message, ...others, ...cause };
    write(`${JSON.stringify(line)}\n`);
  };
}
