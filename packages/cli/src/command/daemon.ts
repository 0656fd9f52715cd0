/** `daemon`: starts it in the background, says whether it runs, ends it. `serve` runs it in the foreground. */
import { setTimeout } from "node:timers/promises";
import type { Command } from "commander";
import { Perdure, PerdureError } from "@perdure/sdk";
import type { Health } from "@perdure/sdk";
import { daemonSettingsHelp } from "@perdure/sdk/setting";
import { askDaemon } from "../daemon-health.ts";
import { startDaemon } from "../daemon-start.ts";
import { during } from "../progress.ts";
import { addDaemonOptions, pathsOf } from "../session.ts";
import type { SharedOptions } from "../session.ts";

const STOP_DEADLINE_MS = 60_000;
const POLL_MS = 50;
const POLL_ANSWER_MS = 2_000;

export function addDaemonCommands(program: Command): void {
  const daemon = program
    .command("daemon")
    .description("start the daemon in the background, say whether it runs, or end it")
    .addHelpText(
      "after",
      "\nCommands start one by themselves where none runs; `perdure serve` runs it in the foreground." +
        "\n\nExamples:\n  perdure daemon start\n  perdure daemon status\n  perdure daemon stop",
    );

  const start = daemon
    .command("start")
    .description("start a daemon in the background, unless one answers")
    .addHelpText(
      "after",
      "\nExample:\n  perdure daemon start --home /srv/perdure" +
        `\n\nVariables that it reads:\n${daemonSettingsHelp("variable")}`,
    );
  addDaemonOptions(start).action(async (options: SharedOptions) => {
    const paths = pathsOf(options);
    await using perdure = new Perdure({ socketPath: paths.socket });
    const json = options.json === true;
    await during(json, "Starting the daemon", startDaemon(perdure, paths));
    show(await askDaemon(perdure), json);
  });

  const status = daemon
    .command("status")
    .description("say whether a daemon answers")
    .addHelpText("after", "\nExample:\n  perdure daemon status --json");
  addDaemonOptions(status).action(async (options: SharedOptions) => {
    await using perdure = new Perdure({ socketPath: pathsOf(options).socket });
    show(await askDaemon(perdure), options.json === true);
  });

  const stop = daemon
    .command("stop")
    .description("end the daemon; VMs go on and the next one takes them over")
    .addHelpText("after", "\nExample:\n  perdure daemon stop");
  addDaemonOptions(stop).action(async (options: SharedOptions) => {
    await using perdure = new Perdure({ socketPath: pathsOf(options).socket });
    const { pid } = await askDaemon(perdure);
    await perdure.shutdown({ signal: AbortSignal.timeout(STOP_DEADLINE_MS) });
    const json = options.json === true;
    await during(json, "Ending the daemon", untilGone(perdure, pid));
    const text = `Daemon ended: pid ${pid}\n`;
    process.stdout.write(json ? `${JSON.stringify({ pid })}\n` : text);
  });
}

function show(health: Health, json: boolean): void {
  const { version, startedAtMs, pid, home, url, authorityFile } = health;
  const since = new Date(startedAtMs).toISOString();
  const lines = [`Daemon ${version} runs since ${since}: pid ${pid}, home ${home}`];
  if (url != null) lines.push(`It listens on ${url}`);
  if (authorityFile != null) lines.push(`Clients over TLS have to trust ${authorityFile}`);
  const text = `${lines.join("\n")}\n`;
  process.stdout.write(json ? `${JSON.stringify(health)}\n` : text);
}

async function untilGone(perdure: Perdure, pid: number): Promise<void> {
  const deadline = performance.now() + STOP_DEADLINE_MS;
  while (performance.now() < deadline) {
    const answers = await askDaemon(perdure, POLL_ANSWER_MS).then(
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
