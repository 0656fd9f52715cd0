/** `exec`: runs a program in an agent as if it were here, or attaches to one that runs. */
import { InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import { follow } from "../follow.ts";
import { parseCount, parseDuration } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { Session, SharedOptions } from "../session.ts";
import { isPiped } from "../stdin.ts";
import { terminalSize } from "../local-terminal.ts";
import { runOnTerminal } from "../terminal-session.ts";
import { termOf } from "./shell.ts";

interface ExecOptions extends SharedOptions {
  readonly interactive?: boolean;
  readonly tty?: boolean;
  readonly user?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly timeout?: number;
  readonly detach?: boolean;
  readonly attach?: number;
  readonly offset?: number;
}

export function addExecCommand(program: Command): void {
  const command = program
    .command("exec")
    .description("run a program in an agent; wakes the agent where it is asleep")
    .usage("[options] <agent> [--] [program] [arguments...]")
    .argument("<agent>", "name or id")
    .argument(
      "[program...]",
      "program and arguments (default: the image's own); no shell is involved",
    )
    .option("-i, --interactive", "forward stdin, also from a terminal")
    .option("-t, --tty", "run it on a terminal, shown on this one; stdin is typed on it")
    .option("-u, --user <name>", "user to run as (default: as the image says)")
    .option("--cwd <folder>", "working folder")
    .addOption(
      new Option("-e, --env <name=value>", "set a variable; may be given again").argParser(
        addVariable,
      ),
    )
    .option("--timeout <duration>", "end the program after this long, as in 30s", parseDuration)
    .addOption(
      // Nothing is left here that could feed a program that was detached.
      new Option("-d, --detach", "print the process number and return").conflicts("interactive"),
    )
    .addOption(
      new Option("--attach <process>", "follow a process that runs")
        .argParser(parseCount(1))
        .conflicts(["detach", "env", "cwd", "user", "timeout", "tty"]),
    )
    .option("--offset <bytes>", "with --attach: where its output begins", parseCount(0))
    .addHelpText("after", examples);
  addSharedOptions(command).action(async (agent: string, argv: string[], options: ExecOptions) => {
    if (argv[0] === "") command.error("error: the program has an empty name");
    if (options.attach !== undefined && argv.length > 0) {
      command.error("error: --attach follows a process that runs; it takes no program");
    }
    if (options.offset !== undefined && options.attach === undefined) {
      command.error("error: --offset goes with --attach; a new program's output begins at 0");
    }
    if (options.tty === true && options.json === true) {
      command.error("error: --tty shows a terminal as it is; it goes without --json");
    }
    await withSession(options, (session) => execute(session, agent, argv, options));
  });
}

const examples = `
Exit codes:
  125      perdure failed or was called wrongly: no such agent, no daemon, output lost ...
  126      the program was found but cannot be run
  127      the program was not found in the agent
  128 + n  signal n ended the program, 137 also at its time-out
  else     the program's own

Ctrl-C goes to the program; with --attach it only detaches. With --tty Ctrl-P Ctrl-Q detaches.

Examples:
  perdure exec builder uname -a
  perdure exec builder -- sh -c 'echo $HOME; ls -l'
  tar c . | perdure exec builder --cwd /home/user tar x
  perdure exec builder --detach sleep 600
  perdure exec builder --attach 3 --offset 0`;

async function execute(
  session: Session,
  agent: string,
  argv: readonly string[],
  options: ExecOptions,
): Promise<number> {
  const { perdure, during, print } = session;
  if (options.attach !== undefined) {
    const handle = perdure.process(agent, options.attach);
    const interactive = options.interactive === true;
    return follow(handle, {
      offset: options.offset ?? 0,
      stdin: interactive,
      started: false,
      json: session.json,
    });
  }
  const { tty = false, detach = false } = options;
  const typed = options.interactive === true || isPiped() || (tty && process.stdin.isTTY);
  const stdin = !detach && typed;
  const request = {
    env: { ...(tty ? termOf() : {}), ...options.env },
    stdin,
    ...(tty ? { terminal: terminalSize() } : {}),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.timeout === undefined ? {} : { timeoutMs: options.timeout }),
  };
  const starting = perdure.exec(agent, argv, request);
  const what = argv[0] === undefined ? "the image's program" : `"${argv[0]}"`;
  const handle = await during(`Starting ${what} in agent "${agent}"`, starting);
  if (detach) {
    print({ process: handle.process }, `${handle.process}\n`);
    return 0;
  }
  if (tty) return runOnTerminal(await handle.attach(), { typed, redraw: false });
  return follow(handle, { offset: 0, stdin, started: true, json: session.json });
}

function addVariable(text: string, previous: Record<string, string> = {}): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Write it as NAME=value.");
  return { ...previous, [text.slice(0, at)]: text.slice(at + 1) };
}
