/** A program in an agent on this process's terminal, to its end or until it is left. */
import { constants } from "node:os";
import { goesOn, PerdureError } from "@perdure/sdk";
import type { Attachment, Exit, Output, TerminalSize } from "@perdure/sdk";
import { createDetachKeys } from "./detach-keys.ts";
import { EXEC_FAILED } from "./exit-code.ts";
import { takeTerminal, terminalSize } from "./local-terminal.ts";
import type { LocalTerminal } from "./local-terminal.ts";
import { write } from "./output.ts";

export interface TerminalSessionOptions {
  /** Whether stdin is typed on it. */
  readonly typed: boolean;
  /** It ran before: the program is made to draw itself anew. */
  readonly redraw: boolean;
}

/** Returns the exit code for this process; 0 where the program was left by the keys. */
export async function runOnTerminal(
  attachment: Attachment,
  { typed, redraw }: TerminalSessionOptions,
): Promise<number> {
  const left = Promise.withResolvers<Left>();
  const terminal = takeTerminal();
  const stopListening = leaveOnSignals(left.resolve);
  let isOver = false;
  try {
    followSize(attachment, terminal, redraw);
    if (typed) typeOn(attachment, left.resolve);
    const end = await Promise.race([show(attachment), left.promise]);
    isOver = end.type === "exit";
    attachment.close();
    terminal.restore(!isOver);
    return tell(attachment, end);
  } catch (error) {
    if (error instanceof PerdureError && error.code === "interrupted") {
      const { code, message, details } = error;
      throw new PerdureError(code, message, { details, hint: againOf(attachment), cause: error });
    }
    if (!isBrokenPipe(error)) throw error;
    return 128 + constants.signals.SIGPIPE;
  } finally {
    attachment.close();
    terminal.restore(!isOver);
    stopListening();
    process.stdin.pause();
  }
}

type Left =
  | { readonly type: "detached" }
  /** Of this process. */
  | { readonly type: "signal"; readonly name: "SIGTERM" | "SIGHUP" };

type End = Left | (Output & { readonly type: "exit" | "interrupted" });

/** Output as fast as it is taken. */
async function show(attachment: Attachment): Promise<End> {
  for await (const event of attachment) {
    switch (event.type) {
      case "output":
        await write(process.stdout, event.bytes);
        break;
      case "cut":
        await write(
          process.stdout,
          `\r\n[${event.to - event.from} bytes of output are not kept]\r\n`,
        );
        break;
      case "exit":
      case "interrupted":
        return event;
    }
  }
  throw new PerdureError("internal", "The output ended without an exit");
}

function tell(attachment: Attachment, end: End): number {
  const { agent } = attachment;
  const again = againOf(attachment);
  switch (end.type) {
    case "exit":
      return exitCode(end);
    case "detached":
      process.stderr.write(`\nperdure: detached; ${again}\n`);
      return 0;
    case "signal":
      process.stderr.write(`\nperdure: ended by ${end.name}; ${again}\n`);
      return 128 + constants.signals[end.name];
    case "interrupted": {
      const hint = goesOn(end)
        ? again
        : `\`perdure processes ${agent}\` shows what runs in it now; this may have ended.`;
      process.stderr.write(
        `\nperdure: agent "${agent}" is out of reach: ${end.reason}\nHint: ${hint}\n`,
      );
      return EXEC_FAILED;
    }
  }
}

function againOf({ agent, process: number, offset }: Attachment): string {
  return `\`perdure shell ${agent} --attach ${number} --offset ${offset}\` goes on with it.`;
}

function exitCode({ exitCode: code, signal, timedOut }: Exit): number {
  if (timedOut) process.stderr.write("perdure: the program was ended by its time-out\n");
  return code ?? 128 + (signal ?? 0);
}

/** What is typed, in order; the keys leave. Nobody reads it any more: it is dropped, and the end is told elsewhere. */
function typeOn(attachment: Attachment, leave: (left: Left) => void): void {
  const { stdin } = process;
  const keys = createDetachKeys();
  const type = async (): Promise<void> => {
    for await (const chunk of stdin) {
      const { bytes, detached } = stdin.isTTY
        ? keys(chunk as Uint8Array)
        : { bytes: chunk as Uint8Array, detached: false };
      await attachment.write(bytes);
      if (detached) {
        leave({ type: "detached" });
        return;
      }
    }
    await attachment.end();
  };
  type().catch(() => undefined);
}

/** Sizes one after another, the newest only. Who has no terminal has no size. */
function followSize(attachment: Attachment, terminal: LocalTerminal, redraw: boolean): void {
  let wanted: TerminalSize | null = null;
  let busy = false;
  const apply = async (): Promise<void> => {
    busy = true;
    while (wanted !== null) {
      const size = wanted;
      wanted = null;
      await attachment.resize(size).catch(() => undefined);
    }
    busy = false;
  };
  const set = (size: TerminalSize): void => {
    wanted = size;
    if (!busy) void apply();
  };
  terminal.onResize(set);
  if (!redraw) return;
  // A program draws itself anew when its size changes, and only then.
  const { rows, columns } = terminalSize();
  void attachment
    .resize({ rows, columns: columns === 1 ? 2 : columns - 1 })
    .catch(() => undefined)
    .then(() => set(terminalSize()));
}

function leaveOnSignals(leave: (left: Left) => void): () => void {
  const names = ["SIGTERM", "SIGHUP"] as const;
  const listeners = names.map((name) => [name, () => leave({ type: "signal", name })] as const);
  for (const [name, listener] of listeners) process.on(name, listener);
  return () => {
    for (const [name, listener] of listeners) process.off(name, listener);
  };
}

function isBrokenPipe(error: unknown): boolean {
  return ["EPIPE", "EIO"].includes(String((error as { code?: unknown }).code));
}
