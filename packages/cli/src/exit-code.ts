/**
 * Exit codes of `perdure`: 0, 1 where something failed, 2 where it was called wrongly, whoever found that: an
 * option that there is not, or a value that is malformed or out of range (`bad_request`). `exec` and `shell` end as the program inside ends, and their own failures have the codes that `env`, `timeout` and `docker` use.
 */
import { CommanderError } from "commander";
import { PerdureError } from "@perdure/sdk";

const FAILED = 1;
const USAGE = 2;
/** `exec` and `shell`: Perdure failed, or was called wrongly; nothing is known of a program's end. */
export const EXEC_FAILED = 125;
const CANNOT_RUN = 126;
const PROGRAM_NOT_FOUND = 127;

/** For what `verb`, the first word of the command line, has thrown. */
export function failureCode(error: unknown, verb: string | undefined): number {
  if (error instanceof CommanderError && error.exitCode === 0) return 0;
  const isUsage =
    error instanceof CommanderError ||
    (error instanceof PerdureError && error.code === "bad_request");
  if (verb !== "exec" && verb !== "shell") return isUsage ? USAGE : FAILED;
  if (!(error instanceof PerdureError) || error.code !== "exec_failed") return EXEC_FAILED;
  return isNotFound(error) ? PROGRAM_NOT_FOUND : CANNOT_RUN;
}

/** The reason stands behind the name of the program, which may hold anything. */
function isNotFound({ message }: PerdureError): boolean {
  return /\bENOENT\b[^"]*$/.test(message);
}
