/**
 * Starts the daemon in the background when none answers: a session of its own, its words in a log
 * file. Of several CLIs that come at once, one starts it and all wait for it.
 */
import { spawn } from "node:child_process";
import { closeSync, existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PerdureError } from "@perdure/sdk";
import type { DaemonPaths, Perdure } from "@perdure/sdk";
import { HOME_HINT, makeFolders } from "@perdure/sdk/data-folder";
import { askDaemon } from "./daemon-health.ts";
import { beginLog, startFailure } from "./daemon-log.ts";
import type { BegunLog } from "./daemon-log.ts";
import { localError } from "@perdure/sdk/local-error";
import { takeStartLock } from "./start-lock.ts";
import type { StartLock } from "./start-lock.ts";

const START_DEADLINE_MS = 60_000;
const POLL_MS = 50;
/** After our child ended: another daemon may just be coming up. */
const LAST_CHANCE_MS = 2000;

/** Resolves when a daemon answers. @throws what the daemon itself says, or `daemon_unreachable` */
export async function startDaemon(perdure: Perdure, paths: DaemonPaths): Promise<void> {
  const program = daemonProgram();
  const undo = makeFolders(paths);
  let deadline = performance.now() + START_DEADLINE_MS;
  let lock: StartLock | undefined;
  let log: BegunLog | undefined;
  let ended = false as boolean;
  try {
    while (performance.now() < deadline) {
      if (await answers(perdure)) return;
      lock ??= takeStartLock(join(paths.run, "start.lock"));
      if (lock !== undefined && log === undefined) {
        log = beginLog(paths.log);
        spawnDaemon(program, paths, log, () => {
          ended = true;
          deadline = Math.min(deadline, performance.now() + LAST_CHANCE_MS);
        });
      }
      await setTimeout(POLL_MS);
    }
  } catch (error) {
    if (log === undefined) undo();
    throw localError(`start the daemon in "${paths.home}"`, error, HOME_HINT);
  } finally {
    lock?.release();
  }
  throw log !== undefined && ended ? startFailure(log) : stillStarting(paths);
}

/** Ours, with much to take over, or another CLI's. */
function stillStarting({ log }: DaemonPaths): PerdureError {
  const seconds = START_DEADLINE_MS / 1000;
  return new PerdureError("daemon_unreachable", `The daemon does not answer after ${seconds} s`, {
    hint: `Its start may go on: try again, and look at its log, "${log}".`,
  });
}

/** Path of `perdured.mjs`. @throws `daemon_unreachable` where it is not installed */
export function daemonProgram(): string {
  const given = process.env["PERDURE_DAEMON"];
  if (given !== undefined && given !== "") return given;
  const here = dirname(fileURLToPath(import.meta.url));
  const beside = join(here, "..", "..", "daemon", "bin", "perdured.mjs");
  if (existsSync(beside)) return beside;
  for (let folder = here; folder !== dirname(folder); folder = dirname(folder)) {
    const found = join(folder, "node_modules", "@perdure", "daemon", "bin", "perdured.mjs");
    if (existsSync(found)) return found;
  }
  throw new PerdureError("daemon_unreachable", "Cannot start the daemon: it is not installed", {
    hint: "Install package @perdure/daemon, or set PERDURE_SOCKET to a daemon that runs.",
  });
}

/** Arguments for `perdured.mjs`. */
export function daemonArguments({ home, socket }: DaemonPaths): string[] {
  return ["--home", home, "--socket", socket];
}

function spawnDaemon(program: string, paths: DaemonPaths, log: BegunLog, onEnd: () => void): void {
  const child = spawn(process.execPath, [program, ...daemonArguments(paths)], {
    detached: true,
    stdio: ["ignore", log.descriptor, log.descriptor],
    cwd: "/",
  });
  closeSync(log.descriptor);
  child.once("error", onEnd).once("exit", onEnd);
  child.unref();
}

async function answers(perdure: Perdure): Promise<boolean> {
  try {
    await askDaemon(perdure);
    return true;
  } catch (error) {
    if (error instanceof PerdureError && error.code === "daemon_unreachable") return false;
    throw error;
  }
}
