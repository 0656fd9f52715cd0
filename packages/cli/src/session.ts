/**
 * One run of a command: a client (with a daemon started where none answers on its socket), progress on
 * stderr, and data on stdout in the form that was asked for.
 */
import type { Command } from "commander";
import { daemonPaths, Perdure, PerdureError } from "@perdure/sdk";
import type { DaemonPaths } from "@perdure/sdk";
import { askDaemon } from "./daemon-health.ts";
import { startDaemon } from "./daemon-start.ts";
import { during } from "./progress.ts";

/** Options that every command has. */
export interface SharedOptions {
  readonly json?: boolean;
  readonly socket?: string;
  readonly home?: string;
  readonly url?: string;
}

export interface Session {
  readonly perdure: Perdure;
  readonly json: boolean;
  /** Waits for `work`; says `title` on stderr where that takes long. */
  readonly during: <T>(title: string, work: Promise<T>) => Promise<T>;
  /** Data to stdout: `value` as JSON, or `text` for people. */
  readonly print: (value: unknown, text: string) => void;
}

export function addSharedOptions(command: Command): Command {
  return command
    .option("--json", "print data and errors as JSON")
    .option("--socket <path>", "unix socket of the daemon; none is started then")
    .option("--home <folder>", "data directory whose daemon is meant (PERDURE_HOME)")
    .option("--url <url>", "a daemon that listens on TCP (PERDURE_URL), with PERDURE_API_KEY");
}

/** For commands about the daemon on this host itself: none of them starts one because another is not there. */
export function addDaemonOptions(command: Command): Command {
  return command
    .option("--json", "print data and errors as JSON")
    .option("--socket <path>", "unix socket of the daemon (PERDURE_SOCKET)")
    .option("--home <folder>", "data directory (PERDURE_HOME)");
}

/** Where the daemon is meant to be on TCP. An option that names a socket wins over the environment. */
export function urlOf({ url, socket, home }: SharedOptions): string | undefined {
  if (url !== undefined) return url;
  const named = process.env["PERDURE_URL"] ?? "";
  return named === "" || socket !== undefined || home !== undefined ? undefined : named;
}

/** A client of the daemon that the options and the environment name. */
export function openClient(options: SharedOptions): Perdure {
  const url = urlOf(options);
  if (url === undefined) return new Perdure({ socketPath: pathsOf(options).socket });
  const apiKey = process.env["PERDURE_API_KEY"] ?? "";
  return new Perdure({ url, ...(apiKey === "" ? {} : { apiKey }) });
}

export function pathsOf({ home, socket }: SharedOptions): DaemonPaths {
  return daemonPaths({
    ...(home === undefined ? {} : { home }),
    ...(socket === undefined ? {} : { socket }),
  });
}

/** Runs `work` with a client whose daemon answers; its number is the exit code. */
export async function withSession(
  options: SharedOptions,
  work: (session: Session) => Promise<number | undefined>,
): Promise<void> {
  await using perdure = openClient(options);
  const json = options.json === true;
  const session: Session = {
    perdure,
    json,
    during: (title, promise) => during(json, title, promise),
    print: (value, text) => {
      process.stdout.write(json ? `${JSON.stringify(value)}\n` : text);
    },
  };
  try {
    await askDaemon(perdure);
  } catch (error) {
    if (!(error instanceof PerdureError) || error.code !== "daemon_unreachable") throw error;
    const isElsewhere = options.socket !== undefined || urlOf(options) !== undefined;
    if (isElsewhere || process.env["PERDURE_AUTOSTART"] === "0") throw error;
    await session.during("Starting the daemon", startDaemon(perdure, pathsOf(options)));
  }
  process.exitCode = (await work(session)) ?? 0;
}
