/**
 * The thread that starts VM processes. A process is born as a copy of the daemon, page tables and all:
 * that takes tens of milliseconds, so it does not happen on the thread that answers calls, and not when
 * a VM is asked for either. A shell that was born before waits for what it shall become; the next one
 * is made a moment later, when whoever needed the VM most likely has it.
 *
 * - I1 A shell that waits ends by itself when the daemon does: its input ends.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { Readable } from "node:stream";
import { parentPort } from "node:worker_threads";
import { identify, type ProcessIdentity } from "./process.ts";

/** To the thread. */
export type LaunchRequest =
  /** A script for the shell; it ends in an `exec`, and is not read beyond. */
  | { readonly kind: "start"; readonly id: number; readonly script: string }
  /** Nobody reads what it says any more. */
  | { readonly kind: "release"; readonly id: number };

/** From the thread. `ended` comes once, also where the process could not be started. */
export type LaunchReport =
  | { readonly kind: "started"; readonly id: number; readonly identity: ProcessIdentity }
  | { readonly kind: "said"; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: "ended"; readonly id: number; readonly how: string };

interface Shell {
  readonly process: ChildProcess;
  /** Null where it could not be made, or is gone already. */
  readonly identity: Promise<ProcessIdentity | null>;
}

/** A wake takes less. A start that comes sooner makes its own shell. */
const REFILL_AFTER_MS = 500;

const port = parentPort;
const complaints = new Map<number, Readable>();
let waiting: Shell | null = null;
let refilling: NodeJS.Timeout | undefined;

/** Where the host has no room for it, the next start says so. */
function refill(): void {
  try {
    waiting ??= newShell();
  } catch {
    waiting = null;
  }
}

/** Its session is its own, and it has no descriptor of the daemon's but its three pipes. */
function newShell(): Shell {
  const child: ChildProcess = spawn("/bin/sh", [], {
    cwd: "/",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8" },
    detached: true,
    stdio: ["pipe", "ignore", "pipe"],
  });
  // Without pipes where the host has no descriptors left: then it fails a moment later.
  child.stdin?.on("error", () => undefined);
  child.stderr?.on("error", () => undefined);
  const identity = child.pid === undefined ? null : identify(child.pid).catch(() => null);
  const shell = { process: child, identity: Promise.resolve(identity) };
  // Somebody ended it while it waited: the next start makes another.
  const lost = (): void => {
    if (waiting === shell) waiting = null;
  };
  child.once("error", lost);
  child.once("exit", lost);
  return shell;
}

async function start({ id, script }: Extract<LaunchRequest, { kind: "start" }>): Promise<void> {
  const shell = waiting ?? newShell();
  waiting = null;
  follow(id, shell.process);
  const identity = await shell.identity;
  if (identity === null) {
    // What nobody could know again is not let become a VM; its end is told by `follow`.
    shell.process.kill("SIGKILL");
  } else {
    tell({ kind: "started", id, identity });
    shell.process.stdin?.end(script);
  }
  clearTimeout(refilling);
  refilling = setTimeout(refill, REFILL_AFTER_MS);
}

function follow(id: number, child: ChildProcess): void {
  if (child.stderr) complaints.set(id, child.stderr);
  child.stderr?.on("data", (bytes: Buffer) => tell({ kind: "said", id, bytes }));
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
  if (request.kind === "release") complaints.get(request.id)?.destroy();
  else start(request).catch((error: unknown) => ended(request.id, String(error)));
});
refill();
