/** Runs a job in its process, from the main thread: waits for the image, passes progress on, cancels. */
import { Worker } from "node:worker_threads";
import { PerdureError } from "@perdure/protocol";
import type { Job, WorkLine } from "./work.ts";
import type { WorkMessage } from "./work-thread.ts";

/**
 * @returns the id of the image
 * @throws what the job throws; `cancelled` where `signal` aborts: then the process and its tools are gone
 */
export async function runWork(
  job: Job,
  signal: AbortSignal,
  report: (message: string) => void,
): Promise<string> {
  signal.throwIfAborted();
  const thread = new Worker(new URL("./work-thread.ts", import.meta.url), {
    workerData: job,
    execArgv: [],
  });
  const cancel = (): void => thread.postMessage("stop");
  signal.addEventListener("abort", cancel, { once: true });
  let result: Exclude<WorkLine, { type: "progress" }> | null = null;
  try {
    const ended = await new Promise<WorkMessage & { kind: "ended" }>((resolve, reject) => {
      thread.on("message", (message: WorkMessage) => {
        if (message.kind === "ended") {
          resolve(message);
          return;
        }
        const line = JSON.parse(message.line) as WorkLine;
        if (line.type === "progress") report(line.message);
        else result = line;
      });
      thread.once("error", reject);
      // After a job that came to its end nobody hears of this any more.
      thread.once("exit", () => reject(new Error("The thread of an image's process ended")));
    });
    return idOf(result, ended, signal);
  } finally {
    signal.removeEventListener("abort", cancel);
    await thread.terminate();
  }
}

function idOf(
  result: Exclude<WorkLine, { type: "progress" }> | null,
  { how, complaint }: { readonly how: string; readonly complaint: string },
  signal: AbortSignal,
): string {
  if (result?.type === "done") return result.id;
  if (signal.aborted)
    throw new PerdureError("cancelled", "The image is not made: it was cancelled");
  if (result !== null) throw PerdureError.fromBody(result.error);
  throw new PerdureError(
    "image_build_failed",
    `The process that made the image ended with ${how}\n${complaint}`.trimEnd(),
  );
}
