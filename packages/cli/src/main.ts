/** Entry of `perdure`: exit 0, 1 where something failed, 2 where it was called wrongly. */
import { CommanderError } from "commander";
import { reportError } from "./error-report.ts";
import { separateProgram } from "./exec-arguments.ts";
import { createProgram } from "./program.ts";

const USAGE = 2;
const argv = process.argv.slice(2);
const json = wantsJson(argv);

// A reader of our output that goes away is told to the writers; without these it would be a crash.
process.stdout.on("error", endQuietly);
process.stderr.on("error", endQuietly);

try {
  await createProgram(json).parseAsync(separateProgram(argv), { from: "user" });
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : USAGE;
  else {
    reportError(error, json);
    process.exitCode = 1;
  }
}
// stdin or a connection may still be open.
process.exit();

/** Before the program of an exec; commander has not parsed anything yet when this is needed. */
function wantsJson(words: readonly string[]): boolean {
  const separated = separateProgram(words);
  const end = separated.indexOf("--");
  return separated.slice(0, end === -1 ? undefined : end).includes("--json");
}

function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
}
