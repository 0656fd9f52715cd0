/** How a failure is told: for people on two lines, for programs as an `ErrorBody`; always on stderr. */
import { PerdureError } from "@perdure/sdk";

export function reportError(error: unknown, json: boolean): void {
  const known = PerdureError.from(error);
  if (json) {
    process.stderr.write(`${JSON.stringify(known)}\n`);
    return;
  }
  process.stderr.write(`perdure: ${known.message}\n`);
  if (known.hint !== undefined) process.stderr.write(`Hint: ${known.hint}\n`);
  if (!(error instanceof PerdureError) && error instanceof Error && error.stack !== undefined) {
    process.stderr.write(`${error.stack}\n`);
  }
}
