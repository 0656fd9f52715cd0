/**
 * The thread that starts a work process and passes its lines on: a process is born as a copy of the daemon,
 * which takes tens of milliseconds that the main loop does not have.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { parentPort, workerData } from "node:worker_threads";
import type { Job } from "./work.ts";

/** To the main thread: lines as they come, then how it ended. */
export type WorkMessage =
  | { readonly kind: "line"; readonly line: string }
  | { readonly kind: "ended"; readonly how: string; readonly complaint: string };

/** From a cancel until the process is ended the hard way. */
const cleanUpMs = 20_000;
const complaintBytes = 4096;

const port = parentPort;
if (port === null) throw new Error("This runs in a thread");

const child = spawn(
  process.execPath,
  [new URL("./work-process.ts", import.meta.url).pathname, JSON.stringify(workerData as Job)],
  { stdio: ["pipe", "pipe", "pipe"], detached: true, cwd: "/" },
);
let complaint = "";
child.stdin.on("error", () => undefined);
child.stderr.setEncoding("utf8").on("data", (text: string) => {
  complaint = (complaint + text).slice(-complaintBytes);
});
createInterface({ input: child.stdout }).on("line", (line) => {
  port.postMessage({ kind: "line", line } satisfies WorkMessage);
});
child.once("error", (error) => {
  complaint ||= error.message;
});
child.once("close", (code, signal) => {
  const how = signal ?? `exit code ${String(code)}`;
  port.postMessage({ kind: "ended", how, complaint } satisfies WorkMessage);
  port.close();
});

/** The only thing that is ever said to this thread: stop. */
port.once("message", () => {
  child.stdin.end();
  const timer = setTimeout(() => {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  }, cleanUpMs);
  child.once("close", () => clearTimeout(timer));
});
