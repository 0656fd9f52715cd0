/**
 * The daemon's unix socket: 0600 in a folder 0700. A socket file that nobody listens on is left over
 * from a daemon that died and is replaced; one that answers belongs to another daemon.
 */
import { chmod, lstat, rm } from "node:fs/promises";
import { connect } from "node:net";
import { dirname } from "node:path";
import { PerdureError } from "@perdure/protocol";
import { makeFolder } from "@perdure/sdk/data-folder";

/** sun_path holds 108 bytes with its ending zero. */
export const SOCKET_PATH_BYTES_MAX = 107;

/** Makes `path` free to listen on. @throws `daemon_running`, `bad_request`, and what a folder may fail with */
export async function prepareSocket(path: string): Promise<void> {
  if (Buffer.byteLength(path) > SOCKET_PATH_BYTES_MAX) {
    throw new PerdureError(
      "bad_request",
      `Cannot listen on "${path}": a socket's path has at most ${SOCKET_PATH_BYTES_MAX} bytes`,
      { hint: "Give a shorter --socket or --home." },
    );
  }
  await makeSocketFolder(dirname(path));
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
async function makeSocketFolder(folder: string): Promise<void> {
  const hint = "Set --socket or PERDURE_SOCKET to a path in a folder that you may write.";
  const made = makeFolder(folder, { name: "socket's folder", mode: 0o700, hint });
  if (made.includes(folder)) await chmod(folder, 0o700);
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
