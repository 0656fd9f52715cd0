/**
 * The thread that starts VM processes. Starting one copies the daemon's page tables, which takes tens of
 * milliseconds on a busy host: not on the thread that answers calls.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import { parentPort } from "node:worker_threads";

/** To the thread. */
export type LaunchRequest =
  | {
      readonly kind: "start";
      readonly id: number;
      readonly file: string;
      readonly arguments: readonly string[];
      readonly cwd: string;
    }
  /** Nobody reads what it says any more. */
  | { readonly kind: "release"; readonly id: number };

/** From the thread. `ended` comes once, also where the process could not be started. */
export type LaunchReport =
  | { readonly kind: "started"; readonly id: number; readonly pid: number }
  | { readonly kind: "said"; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: "ended"; readonly id: number; readonly how: string };

const port = parentPort;
const complaints = new Map<number, Readable>();

function start(request: Extract<LaunchRequest, { kind: "start" }>): void {
  const { id, file, cwd } = request;
  const child = spawn(file, [...request.arguments], {
    cwd,
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8" },
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
  });
  complaints.set(id, child.stderr);
  child.stderr.on("data", (bytes: Buffer) => tell({ kind: "said", id, bytes }));
  child.stderr.on("error", () => undefined);
  follow(id, child);
}

function follow(id: number, child: ChildProcess): void {
  child.once("spawn", () => {
    if (child.pid !== undefined) tell({ kind: "started", id, pid: child.pid });
  });
  child.once("error", (error) => ended(id, error.message));
  child.once("exit", (code, signal) =>
    ended(id, signal === null ? `exit code ${code ?? 0}` : `killed by ${signal}`),
  );
}

function ended(id: number, how: string): void {
  complaints.delete(id);
  tell({ kind: "ended", id, how });
}

function tell(report: LaunchReport): void {
  port?.postMessage(report);
}

port?.on("message", (request: LaunchRequest) => {
  if (request.kind === "start") start(request);
  else complaints.get(request.id)?.destroy();
});
