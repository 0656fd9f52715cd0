/**
 * The daemon's unix socket: 0600 in a folder 0700. A socket file that nobody listens on is left over
 * from a daemon that died and is replaced; one that answers belongs to another daemon.
 */
import { chmod, lstat, mkdir, rm } from "node:fs/promises";
import { connect } from "node:net";
import { dirname } from "node:path";
import { PerdureError } from "@perdure/protocol";

/** sun_path holds 108 bytes with its ending zero. */
export const SOCKET_PATH_BYTES_MAX = 107;

/** Makes `path` free to listen on. @throws `daemon_running`, `bad_request` */
export async function prepareSocket(path: string): Promise<void> {
  if (Buffer.byteLength(path) > SOCKET_PATH_BYTES_MAX) {
    throw new PerdureError(
      "bad_request",
      `Cannot listen on "${path}": a socket's path has at most ${SOCKET_PATH_BYTES_MAX} bytes`,
      { hint: "Give a shorter --socket or --home." },
    );
  }
  await makeFolder(dirname(path));
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return;
  if (!found.isSocket()) {
    throw new PerdureError("bad_request", `Cannot listen on "${path}": it is not a socket`, {
      hint: "Remove it, or give another --socket.",
    });
  }
  if (await answers(path)) {
    throw new PerdureError("daemon_running", `Cannot listen on "${path}": another daemon does`, {
      hint: "Use that daemon, or give this one another --home and --socket.",
    });
  }
  await rm(path, { force: true });
}

export async function restrictSocket(path: string): Promise<void> {
  await chmod(path, 0o600);
}

/** Only a folder that was made here, or that is ours alone by name, is changed. */
async function makeFolder(folder: string): Promise<void> {
  const made = await mkdir(folder, { recursive: true, mode: 0o700 });
  if (made !== undefined) await chmod(folder, 0o700);
}

function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", (error: NodeJS.ErrnoException) => {
      resolve(error.code !== "ECONNREFUSED" && error.code !== "ENOENT");
    });
  });
}
