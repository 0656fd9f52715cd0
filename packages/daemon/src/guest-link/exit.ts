/** How a process or a hook ended, as the guest reports it. */
import type { Fields } from "./field.ts";
import { tag } from "./operation.ts";
import { violation } from "./violation.ts";

const EXIT_CODE_MAX = 255;
const SIGNAL_MAX = 64;

/** An exit code or a signal, never both and never neither. */
export function decodeExit(fields: Fields): { exitCode: number | null; signal: number | null } {
  const exitCode = fields.optionalNumber(tag.exitCode, EXIT_CODE_MAX) ?? null;
  const signal = fields.optionalNumber(tag.signal, SIGNAL_MAX) ?? null;
  if ((exitCode === null) === (signal === null)) {
    throw violation("an end needs either an exit code or a signal");
  }
  if (signal === 0) throw violation("an end by signal 0");
  return { exitCode, signal };
}
