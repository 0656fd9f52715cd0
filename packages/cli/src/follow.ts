/**
 * Follows a process to its end: output to stdout and stderr as fast as they are taken, stdin and
 * signals to the process. Returns the exit code for this process.
 */
import { constants } from "node:os";
import { goesOn, PerdureError } from "@perdure/sdk";
import type { Exit, Output, ProcessHandle } from "@perdure/sdk";
import { EXEC_FAILED } from "./exit-code.ts";
import { write } from "./output.ts";
import { forwardStdin } from "./stdin.ts";

export interface FollowOptions {
  readonly offset: number;
  readonly stdin: boolean;
  /**
   * This command started the program: Ctrl-C goes to it, and output that was not kept is a failure. Else
   * Ctrl-C only detaches.
   */
  readonly started: boolean;
  /** Events of the API on stdout, one per line, in place of the bytes. */
  readonly json: boolean;
}

/** Ctrl-C so often in a row gives up on a program that ignores it. */
const INTERRUPTS_MAX = 3;

export async function follow(handle: ProcessHandle, options: FollowOptions): Promise<number> {
  const gaveUp = new AbortController();
  // For good: the process ends right after this, and a Ctrl-C that comes late must not change how.
  if (options.started) passSignals(handle, gaveUp);
  else detachOnSignals(gaveUp);
  let cut = false;
  const feeding = options.stdin ? forwardStdin(handle) : Promise.resolve();
  feeding.catch((error: unknown) => {
    process.stderr.write(`perdure: stdin is not forwarded any more: ${String(error)}\n`);
  });
  try {
    for await (const event of handle.output({ offset: options.offset, signal: gaveUp.signal })) {
      await (options.json ? write(process.stdout, eventLine(event)) : show(handle, event));
      cut ||= event.type === "cut" && options.started;
      if (event.type === "exit") return exitCode(event, options.json) || (cut ? EXEC_FAILED : 0);
      if (event.type === "interrupted") return EXEC_FAILED;
    }
    throw new PerdureError("internal", "The output ended without an exit");
  } catch (error) {
    if (isBrokenPipe(error)) {
      await handle.signal("SIGPIPE").catch(() => undefined);
      return 128 + constants.signals.SIGPIPE;
    }
    if (!gaveUp.signal.aborted) throw error;
    process.stderr.write(`perdure: detached; ${again(handle)}\n`);
    return 128 + constants.signals.SIGINT;
  }
}

async function show(handle: ProcessHandle, event: Output): Promise<void> {
  switch (event.type) {
    case "output":
      return write(process[event.stream], event.bytes);
    case "cut":
      return write(
        process.stderr,
        `perdure: ${event.to - event.from} bytes of output are not kept\n`,
      );
    case "interrupted": {
      const line = `perdure: agent "${handle.agent}" is out of reach: ${event.reason}\n`;
      const hint = goesOn(event)
        ? again(handle, event.offset)
        : `\`perdure processes ${handle.agent}\` shows what runs in it now; this may have ended.`;
      return write(process.stderr, `${line}Hint: ${hint}\n`);
    }
    case "exit":
      return;
  }
}

function again({ agent, process: number }: ProcessHandle, offset = 0): string {
  return `\`perdure exec ${agent} --attach ${number} --offset ${offset}\` follows it again.`;
}

function exitCode({ exitCode: code, signal, timedOut }: Exit, quiet: boolean): number {
  if (timedOut && !quiet) process.stderr.write("perdure: the program was ended by its time-out\n");
  return code ?? 128 + (signal ?? 0);
}

function eventLine(event: Output): string {
  if (event.type !== "output") return `${JSON.stringify(event)}\n`;
  const { bytes, ...rest } = event;
  return `${JSON.stringify({ ...rest, data: Buffer.from(bytes).toString("base64") })}\n`;
}

function isBrokenPipe(error: unknown): boolean {
  return (error as { code?: unknown }).code === "EPIPE";
}

function detachOnSignals(gaveUp: AbortController): void {
  for (const name of ["SIGINT", "SIGTERM"] as const) process.on(name, () => gaveUp.abort());
}

function passSignals(handle: ProcessHandle, gaveUp: AbortController): void {
  let interrupts = 0;
  for (const name of ["SIGINT", "SIGTERM", "SIGQUIT"] as const) {
    process.on(name, () => {
      if (name === "SIGINT" && ++interrupts > INTERRUPTS_MAX) gaveUp.abort();
      else handle.signal(name).catch(() => undefined);
    });
  }
}
