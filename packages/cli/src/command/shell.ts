/** `shell`: a program on a terminal in an agent, shown on this one; or one that runs, again. */
import { Option } from "commander";
import type { Command } from "commander";
import { PerdureError } from "@perdure/sdk";
import type { Attachment } from "@perdure/sdk";
import { terminalSize } from "../local-terminal.ts";
import { parseCount } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { Session, SharedOptions } from "../session.ts";
import { runOnTerminal } from "../terminal-session.ts";

interface ShellOptions extends SharedOptions {
  readonly user?: string;
  readonly cwd?: string;
  readonly attach?: number;
  readonly offset?: number;
}

export function addShellCommand(program: Command): void {
  const command = program
    .command("shell")
    .description("open a shell in an agent, or run a program there on a terminal")
    .usage("[options] <agent> [--] [program] [arguments...]")
    .argument("<agent>", "name or id")
    .argument("[program...]", "program and arguments (default: the user's login shell)")
    .option("-u, --user <name>", "user to run as (default: as the image says)")
    .option("--cwd <folder>", "working folder")
    .addOption(
      new Option("--attach <process>", "go on with one that runs")
        .argParser(parseCount(1))
        .conflicts(["user", "cwd"]),
    )
    .option(
      "--offset <bytes>",
      "with --attach: where its output begins (default: at what comes next)",
      parseCount(0),
    )
    .addHelpText("after", examples);
  addSharedOptions(command).action(async (agent: string, argv: string[], options: ShellOptions) => {
    if (options.json === true) {
      command.error("error: shell shows a terminal as it is; `exec --json` gives events");
    }
    if (options.attach !== undefined && argv.length > 0) {
      command.error("error: --attach goes on with a process that runs; it takes no program");
    }
    if (options.offset !== undefined && options.attach === undefined) {
      command.error("error: --offset goes with --attach; a new program's output begins at 0");
    }
    await withSession(options, async (session) => {
      const attachment = await open(session, agent, argv, options);
      const redraw = options.attach !== undefined;
      return runOnTerminal(attachment, { typed: true, redraw });
    });
  });
}

const examples = `
Ctrl-P Ctrl-Q leaves the program running and prints how to go on with it. It goes on, too, when the
connection ends or the agent sleeps.

Exit codes are those of \`perdure exec\`; 0 where the program was left.

Examples:
  perdure shell builder
  perdure shell builder --user root -- htop
  perdure shell builder --attach 3`;

async function open(
  { perdure, during }: Session,
  agent: string,
  argv: readonly string[],
  { user, cwd, attach, offset }: ShellOptions,
): Promise<Attachment> {
  if (attach !== undefined) {
    const from = offset ?? (await endOfOutput({ perdure }, agent, attach));
    return perdure.attach(agent, attach, { offset: from });
  }
  const request = {
    ...terminalSize(),
    env: termOf(),
    ...(user === undefined ? {} : { user }),
    ...(cwd === undefined ? {} : { cwd }),
  };
  const program = argv.length === 0 ? undefined : argv;
  const opening = perdure.terminal(agent, program, request);
  const what = program === undefined ? "a shell" : `"${program[0] ?? ""}"`;
  return during(`Starting ${what} in agent "${agent}"`, opening);
}

/** The kind of terminal that this one is. */
export function termOf(): Record<string, string> {
  const { TERM } = process.env;
  return TERM === undefined || TERM === "" ? {} : { TERM };
}

async function endOfOutput(
  { perdure }: Pick<Session, "perdure">,
  agent: string,
  number: number,
): Promise<number> {
  const known = (await perdure.processes(agent)).find(({ process }) => process === number);
  if (known !== undefined) return known.logEnd;
  throw new PerdureError("process_not_found", `Agent "${agent}" knows no process ${number}`, {
    hint: `\`perdure processes ${agent}\` shows those that it knows.`,
  });
}
