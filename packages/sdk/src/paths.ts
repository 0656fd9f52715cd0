/**
 * Where the daemon's files are, for everyone who must find or start it on this host.
 *
 * Home is `PERDURE_HOME`, else `/var/lib/perdure` for root and `~/.local/share/perdure` for others;
 * the socket is `PERDURE_SOCKET`, else `<home>/run/perdure.sock`.
 */
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { PerdureError } from "@perdure/protocol";

/** Absolute paths of one data directory. */
export interface DaemonPaths {
  readonly home: string;
  /** Sockets and logs; made anew by a daemon that finds it gone. */
  readonly run: string;
  readonly socket: string;
  /** What a daemon that was started in the background writes. */
  readonly log: string;
}

export interface DaemonPathOptions {
  readonly home?: string;
  readonly socket?: string;
  /** Default: the process's own. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/**
 * The paths that hold where nothing else is said. Does no I/O.
 *
 * @throws `bad_request` where an option is an empty text
 * @example
 * const { socket, log } = daemonPaths({ home: "/srv/perdure" });
 */
export function daemonPaths(options: DaemonPathOptions = {}): DaemonPaths {
  const env = options.env ?? process.env;
  if (options.home === "") throw empty("data directory", "--home");
  if (options.socket === "") throw empty("socket", "--socket");
  const home = resolve(options.home ?? nonEmpty(env["PERDURE_HOME"]) ?? defaultHome());
  const run = join(home, "run");
  const socket =
    options.socket ??
    (options.home === undefined ? nonEmpty(env["PERDURE_SOCKET"]) : undefined) ??
    join(run, "perdure.sock");
  return { home, run, socket: resolve(socket), log: join(run, "daemon.log") };
}

/** `sun_path` holds 108 bytes with its ending zero. */
const SOCKET_PATH_BYTES_MAX = 107;

/** @throws `bad_request` where the path is too long for a unix socket */
export function checkSocketPath(path: string): void {
  if (Buffer.byteLength(path) <= SOCKET_PATH_BYTES_MAX) return;
  throw new PerdureError(
    "bad_request",
    `Cannot use the socket "${path}": its path has more than ${SOCKET_PATH_BYTES_MAX} bytes`,
    { hint: "Set PERDURE_HOME (--home) or PERDURE_SOCKET (--socket) to a shorter path." },
  );
}

function defaultHome(): string {
  return process.getuid?.() === 0
    ? "/var/lib/perdure"
    : join(homedir(), ".local", "share", "perdure");
}

/** Taken as a path it would be whatever folder the caller is in. */
function empty(what: string, option: string): PerdureError {
  return new PerdureError("bad_request", `Cannot use "" for the ${what}: it is empty`, {
    hint: `Give ${option} a path, or leave it out.`,
  });
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}
