/** The whole command line of `perdure`, put together. Parsing it throws a `CommanderError` where it is wrong. */
import { Command } from "commander";
import { addCompleteCommand } from "./command/complete.ts";
import { addCpCommand } from "./command/cp.ts";
import { addCreateCommand } from "./command/create.ts";
import { addDaemonCommands } from "./command/daemon.ts";
import { addDoctorCommand } from "./command/doctor.ts";
import { addEgressCommand } from "./command/egress.ts";
import { addEventsCommand } from "./command/events.ts";
import { addExecCommand } from "./command/exec.ts";
import { addFileCommands } from "./command/file.ts";
import { addGcCommand } from "./command/gc.ts";
import { addImageCommands } from "./command/image.ts";
import { addKeyCommands } from "./command/key.ts";
import { addListCommand } from "./command/list.ts";
import { addPortCommands } from "./command/port.ts";
import { addReportCommand } from "./command/report.ts";
import { addRestCommands } from "./command/rest.ts";
import { addServeCommand } from "./command/serve.ts";
import { addShellCommand } from "./command/shell.ts";
import { addShowCommands } from "./command/show.ts";
import { addTransferCommands } from "./command/transfer.ts";
import { addVerbCommands } from "./command/verb.ts";
import { addVerifyCommand } from "./command/verify.ts";
import packageFacts from "../package.json" with { type: "json" };

/** `json`: wrong calls are told as an `ErrorBody`. */
export function createProgram(json: boolean): Command {
  const program = new Command("perdure")
    .description("Every AI agent gets its own persistent computer.")
    .version(packageFacts.version)
    .exitOverride()
    .showHelpAfterError(json ? false : "(--help shows how it is used)")
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
        "A daemon is started where none answers (PERDURE_AUTOSTART=0: not).\n" +
        "Exit codes: 0, 1 where something failed, 2 for a wrong call; of a program inside: exec --help.",
    );
  addCreateCommand(program);
  addListCommand(program);
  addShowCommands(program);
  addExecCommand(program);
  addShellCommand(program);
  addCpCommand(program);
  addFileCommands(program);
  addPortCommands(program);
  addEgressCommand(program);
  addVerbCommands(program);
  addRestCommands(program);
  addReportCommand(program);
  addVerifyCommand(program);
  addTransferCommands(program);
  addGcCommand(program);
  addEventsCommand(program);
  addImageCommands(program);
  addKeyCommands(program);
  addDoctorCommand(program);
  addServeCommand(program);
  addDaemonCommands(program);
  addCompleteCommand(program);
  return program;
}

function usageError(text: string) {
  const message = text
    .trim()
    .replace(/^error: /, "")
    .replaceAll("\n", " ");
  return {
    code: "bad_request",
    message: message.charAt(0).toUpperCase() + message.slice(1),
    retry: "never",
    hint: "Option --help shows how the command is used.",
  };
}
