/** Entry of `perdure`. */
import type { Command } from "commander";
import { CommanderError } from "commander";
import { reportError } from "./error-report.ts";
import { inWords } from "./error-words.ts";
import { separateProgram } from "./exec-arguments.ts";
import { failureCode } from "./exit-code.ts";
import { localError } from "@perdure/sdk/local-error";
import { flushed } from "./output.ts";
import { createProgram } from "./program.ts";

const argv = process.argv.slice(2);
const json = wantsJson(argv);
let command: Command | undefined;

process.stdout.on("error", outputFailed);
process.stderr.on("error", outputFailed);

try {
  const program = createProgram(json).hook("preAction", (_, called) => {
    command = called;
  });
  await program.parseAsync(separateProgram(argv), { from: "user" });
} catch (error) {
  fail(error);
}
await flushed(process.stdout, process.stderr);
// stdin or a connection may still be open.
process.exit();

/** Before the program of an exec; commander has not parsed anything yet when this is needed. */
function wantsJson(words: readonly string[]): boolean {
  const separated = separateProgram(words);
  const end = separated.indexOf("--");
  return separated.slice(0, end === -1 ? undefined : end).includes("--json");
}

function fail(error: unknown): void {
  process.exitCode = failureCode(error, argv[0]);
  if (!(error instanceof CommanderError)) reportError(inWords(error, command), json);
}

/** A reader that goes away is told to the writers. Anything else is a failure. */
function outputFailed(error: NodeJS.ErrnoException): void {
  if (error.code === "EPIPE") return;
  fail(localError("write the output", error));
  void flushed(process.stderr).then(() => process.exit());
}
