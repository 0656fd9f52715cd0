/**
 * A promise that fails with nobody waiting for it is a defect, but of one piece of work: the daemon of all
 * agents does not end for it. It is told with its stack.
 */
import type { Log } from "./core/ports/log.ts";

export function tellOfDefects(log: Log): void {
  process.on("unhandledRejection", (reason) => {
    const stack = reason instanceof Error ? (reason.stack ?? reason.message) : String(reason);
    log("error", "A defect in the daemon: work failed and nobody waited for it", { stack });
  });
}
