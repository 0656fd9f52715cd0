import { spawn } from "node:child_process";
import { setTimeout } from "node:timers/promises";
import type { Command } from "commander";
import { Perdure, PerdureError } from "@perdure/sdk";
import { makeFolders } from "@perdure/sdk/data-folder";
import { daemonArguments, daemonProgram } from "../daemon-start.ts";
import { during } from "../progress.ts";
import { addSharedOptions, pathsOf } from "../session.ts";
import type { SharedOptions } from "../session.ts";

const STOP_DEADLINE_MS = 60_000;
const POLL_MS = 50;

interface DaemonOptions extends SharedOptions {
  readonly images?: string;
  readonly listen?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly insecureListen?: boolean;
  readonly corsOrigin?: string[];
}

/** `daemon`, `daemon stop`, `daemon status`. None of them starts a daemon in the background. */
export function addDaemonCommand(program: Command): void {
  const daemon = program
    .command("daemon")
    .description("run the daemon in the foreground")
    .option("--images <folder>", "where images and templates are kept")
    .option("--listen <host:port>", "listen on TCP, too, for callers with API keys")
    .option("--tls-cert <file>", "certificate for --listen, PEM")
    .option("--tls-key <file>", "its key, PEM")
    .option("--insecure-listen", "listen beyond this host without TLS")
    .option("--cors-origin <origin...>", "pages that browsers may call from")
    .addHelpText(
      "after",
      "\nExamples:\n  perdure daemon --home /srv/perdure\n  perdure daemon status\n  perdure daemon stop",
    );
  addSharedOptions(daemon).action(async (options: DaemonOptions) => {
    process.exitCode = await runInForeground(options);
  });

  const status = daemon
    .command("status")
    .description("say whether a daemon answers")
    .addHelpText("after", "\nExample:\n  perdure daemon status --json");
  addSharedOptions(status).action(async (_options: unknown, command: Command) => {
    const options = command.optsWithGlobals<SharedOptions>();
    await using perdure = new Perdure({ socketPath: pathsOf(options).socket });
    const health = await perdure.health();
    const since = new Date(health.startedAtMs).toISOString();
    const text = `Daemon ${health.version} runs since ${since}: pid ${health.pid}, home ${health.home}\n`;
    process.stdout.write(options.json === true ? `${JSON.stringify(health)}\n` : text);
  });

  const stop = daemon
    .command("stop")
    .description("end the daemon; VMs go on and the next one takes them over")
    .addHelpText("after", "\nExample:\n  perdure daemon stop");
  addSharedOptions(stop).action(async (_options: unknown, command: Command) => {
    const options = command.optsWithGlobals<SharedOptions>();
    await using perdure = new Perdure({ socketPath: pathsOf(options).socket });
    const { pid } = await perdure.health();
    await perdure.shutdown();
    const json = options.json === true;
    await during(json, "Ending the daemon", untilGone(perdure, pid));
    const text = `Daemon ended: pid ${pid}\n`;
    process.stdout.write(json ? `${JSON.stringify({ pid })}\n` : text);
  });
}

/** The daemon gets this process's terminal and signals, and gives its exit code. */
function runInForeground(options: DaemonOptions): Promise<number> {
  const paths = pathsOf(options);
  const args = [daemonProgram(), ...daemonArguments(paths)];
  makeFolders(paths);
  for (const name of ["images", "listen", "tlsCert", "tlsKey"] as const) {
    const value = options[name];
    const option = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    if (value !== undefined) args.push(`--${option}`, value);
  }
  if (options.insecureListen === true) args.push("--insecure-listen");
  for (const origin of options.corsOrigin ?? []) args.push("--cors-origin", origin);
  const child = spawn(process.execPath, args, { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => {
      resolve(code ?? 1);
    });
  });
}

async function untilGone(perdure: Perdure, pid: number): Promise<void> {
  const deadline = performance.now() + STOP_DEADLINE_MS;
  while (performance.now() < deadline) {
    const answers = await perdure.health().then(
      () => true,
      () => false,
    );
    if (!answers && !isAlive(pid)) return;
    await setTimeout(POLL_MS);
  }
  throw new PerdureError("deadline_exceeded", `Daemon ${pid} did not end within a minute`, {
    hint: "Look at its log, daemon.log in the run folder.",
  });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
