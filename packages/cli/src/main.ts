/** Entry of `perdure`: exit 0, 1 where something failed, 2 where it was called wrongly. */
import { Command, CommanderError } from "commander";
import { addCpCommand } from "./command/cp.ts";
import { addCreateCommand } from "./command/create.ts";
import { addDaemonCommand } from "./command/daemon.ts";
import { addDoctorCommand } from "./command/doctor.ts";
import { addExecCommand } from "./command/exec.ts";
import { addListCommand } from "./command/list.ts";
import { addReportCommand } from "./command/report.ts";
import { addShowCommands } from "./command/show.ts";
import { addVerbCommands } from "./command/verb.ts";
import { reportError } from "./error-report.ts";
import { separateProgram } from "./exec-arguments.ts";
import packageFacts from "../package.json" with { type: "json" };

const USAGE = 2;
const argv = process.argv.slice(2);
const json = wantsJson(argv);

// A reader of our output that goes away is told to the writers; without these it would be a crash.
process.stdout.on("error", endQuietly);
process.stderr.on("error", endQuietly);

try {
  await createProgram().parseAsync(separateProgram(argv), { from: "user" });
} catch (error) {
  if (error instanceof CommanderError) process.exitCode = error.exitCode === 0 ? 0 : USAGE;
  else {
    reportError(error, json);
    process.exitCode = 1;
  }
}
// stdin or a connection may still be open.
process.exit();

function createProgram(): Command {
  const program = new Command("perdure")
    .description("Every AI agent gets its own persistent computer.")
    .version(packageFacts.version)
    .exitOverride()
    .showHelpAfterError("(--help shows how it is used)")
    .configureOutput({
      outputError: (text, write) => {
        if (json) write(`${JSON.stringify(usageError(text))}\n`);
        else write(text);
      },
    })
    .addHelpText(
      "after",
      "\nExamples:\n  perdure create builder\n  perdure exec builder -- sh -c 'echo hello > note'\n" +
        "  perdure sleep builder\n  perdure exec builder cat note\n\n" +
        "A daemon is started where none answers (PERDURE_AUTOSTART=0: not).",
    );
  addCreateCommand(program);
  addListCommand(program);
  addShowCommands(program);
  addExecCommand(program);
  addCpCommand(program);
  addVerbCommands(program);
  addReportCommand(program);
  addDoctorCommand(program);
  addDaemonCommand(program);
  return program;
}

/** Before the program of an exec; commander has not parsed anything yet when this is needed. */
function wantsJson(words: readonly string[]): boolean {
  const separated = separateProgram(words);
  const end = separated.indexOf("--");
  return separated.slice(0, end === -1 ? undefined : end).includes("--json");
}

function usageError(text: string) {
  const message = text.trim().replace(/^error: /, "");
  return {
    code: "bad_request",
    message: message.charAt(0).toUpperCase() + message.slice(1),
    retry: "never",
    hint: "Option --help shows how the command is used.",
  };
}

function endQuietly(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE") throw error;
}
