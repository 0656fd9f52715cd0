/**
 * Starts the daemon in the background when none answers: a session of its own, its words in a log
 * file. Of several CLIs that come at once, one starts it and all wait for it.
 */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PerdureError } from "@perdure/sdk";
import type { DaemonPaths, Perdure } from "@perdure/sdk";
import { takeStartLock } from "./start-lock.ts";

const START_DEADLINE_MS = 60_000;
const POLL_MS = 50;
/** After our child ended: another daemon may just be coming up. */
const LAST_CHANCE_MS = 2000;
const LOG_TAIL_CHARACTERS = 2000;

/** Resolves when a daemon answers. @throws `daemon_unreachable`, with the tail of its log */
export async function startDaemon(perdure: Perdure, paths: DaemonPaths): Promise<void> {
  mkdirSync(paths.home, { recursive: true, mode: 0o700 });
  mkdirSync(paths.run, { recursive: true, mode: 0o700 });
  let deadline = performance.now() + START_DEADLINE_MS;
  let lock = takeStartLock(join(paths.run, "start.lock"));
  let child: ChildProcess | undefined;
  try {
    while (performance.now() < deadline) {
      if (await answers(perdure)) return;
      lock ??= takeStartLock(join(paths.run, "start.lock"));
      if (lock !== undefined && child === undefined) {
        child = spawnDaemon(paths);
        child.once("exit", () => {
          deadline = Math.min(deadline, performance.now() + LAST_CHANCE_MS);
        });
      }
      await setTimeout(POLL_MS);
    }
  } finally {
    lock?.release();
  }
  throw new PerdureError("daemon_unreachable", `Cannot start the daemon: ${logTail(paths.log)}`, {
    hint: `Its log is "${paths.log}"; \`perdure daemon\` runs it in the foreground.`,
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

function spawnDaemon(paths: DaemonPaths): ChildProcess {
  const log = openSync(paths.log, "a", 0o600);
  const child = spawn(process.execPath, [daemonProgram(), ...daemonArguments(paths)], {
    detached: true,
    stdio: ["ignore", log, log],
    cwd: "/",
  });
  closeSync(log);
  child.on("error", () => undefined);
  child.unref();
  return child;
}

async function answers(perdure: Perdure): Promise<boolean> {
  try {
    await perdure.health();
    return true;
  } catch (error) {
    if (error instanceof PerdureError && error.code === "daemon_unreachable") return false;
    throw error;
  }
}

function logTail(path: string): string {
  try {
    const text = readFileSync(path, "utf8").trimEnd();
    return text === "" ? "it said nothing" : text.slice(-LOG_TAIL_CHARACTERS);
  } catch {
    return "it wrote no log";
  }
}
