/** Processes inside the VM: start, list, signal, forget. */
import { PerdureError, type ProcessView } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { GuestExec, TerminalSize } from "../core/ports/guest-link.ts";
import { call } from "./call.ts";
import { ANSWER_GRACE_MS, USER_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { decodeExit } from "./exit.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { decodeTimedOut } from "./output.ts";
import { quoted } from "./path.ts";
import { requireVersion } from "./version.ts";
import { violation } from "./violation.ts";

export const ARGV_MAX = 1024;
/** Running and ended ones that the guest keeps. */
export const PROCESSES_MAX = 512 + 128;
/** Some may start and end while the list is read. */
const PROCESSES_LISTED_MAX = 2 * PROCESSES_MAX;
/** Rows, and columns, of a terminal. */
const TERMINAL_CELLS_MAX = 4096;
const PID_MAX = 2 ** 31 - 1;

export async function exec(
  epoch: Epoch,
  clock: Clock,
  request: GuestExec,
): Promise<{ process: number; pid: number }> {
  const action = `run ${quoted(request.argv[0] ?? "")}`;
  if (request.terminal !== undefined) requireVersion(epoch, operation.resize, action);
  const fields = encodeExec(action, request);
  return call(epoch, clock, {
    op: operation.exec,
    action,
    control: false,
    deadlineMs: USER_DEADLINE_MS,
    fields,
    decode: (answer) => {
      const process = answer.number(tag.process);
      const pid = answer.number(tag.pid, PID_MAX);
      epoch.expectEvent();
      return { process, pid };
    },
  });
}

function encodeExec(action: string, request: GuestExec): FieldWriter {
  const refuse = (why: string): PerdureError =>
    new PerdureError("bad_request", `Cannot ${action}: ${why}`);
  if (request.argv.length < 1 || request.argv.length > ARGV_MAX) {
    throw refuse(`the command has ${request.argv.length} arguments, 1 to ${ARGV_MAX} are allowed`);
  }
  const fields = new FieldWriter();
  for (const argument of request.argv) {
    if (argument.includes("\0")) throw refuse("an argument holds a zero byte");
    fields.string(tag.argv, argument);
  }
  for (const [name, value] of Object.entries(request.env)) {
    if (name === "" || /[=\0]/.test(name) || value.includes("\0")) {
      throw refuse(`the variable ${quoted(name)} is malformed`);
    }
    fields.string(tag.env, `${name}=${value}`);
  }
  return fields
    .string(tag.cwd, request.cwd)
    .string(tag.user, request.user)
    .number(tag.timeoutMs, request.timeoutMs)
    .flag(tag.stdin, request.stdin)
    .number(tag.logBytes, request.logBytes)
    .add(request.terminal === undefined ? new FieldWriter() : sizeFields(action, request.terminal));
}

function sizeFields(action: string, { rows, columns }: TerminalSize): FieldWriter {
  for (const count of [rows, columns]) {
    if (Number.isInteger(count) && count >= 1 && count <= TERMINAL_CELLS_MAX) continue;
    throw new PerdureError(
      "bad_request",
      `Cannot ${action}: a terminal has 1 to ${TERMINAL_CELLS_MAX} rows and columns, not ${count}`,
    );
  }
  return new FieldWriter().number(tag.rows, rows).number(tag.columns, columns);
}

export async function resizeTerminal(
  epoch: Epoch,
  clock: Clock,
  process: number,
  size: TerminalSize,
): Promise<void> {
  const action = `resize the terminal of process ${process}`;
  requireVersion(epoch, operation.resize, action);
  return call(epoch, clock, {
    op: operation.resize,
    action,
    control: false,
    deadlineMs: USER_DEADLINE_MS,
    fields: new FieldWriter().number(tag.process, process).add(sizeFields(action, size)),
    decode: () => undefined,
  });
}

/**
 * A list that is longer than a frame comes in parts: the guest is asked for what follows the last
 * process of the part before, until nothing new comes.
 */
export async function listProcesses(epoch: Epoch, clock: Clock): Promise<readonly ProcessView[]> {
  const views = new Map<number, ProcessView>();
  let after = 0;
  for (;;) {
    const known = views.size;
    const last = await call(epoch, clock, {
      op: operation.processes,
      action: "list processes",
      control: false,
      deadlineMs: USER_DEADLINE_MS,
      fields: new FieldWriter().number(tag.process, after),
      decode: (answer) => {
        const part = answer.nested(tag.entry, PROCESSES_MAX).map(decodeProcess);
        for (const view of part) views.set(view.process, view);
        if (views.size > PROCESSES_LISTED_MAX) throw violation("an endless list of processes");
        return part.at(-1)?.process;
      },
    });
    if (last === undefined || views.size === known) return [...views.values()];
    after = last;
  }
}

function decodeProcess(entry: Fields): ProcessView {
  const running = entry.flag(tag.running);
  const logStart = entry.number(tag.logStart);
  const logEnd = entry.number(tag.logEnd);
  if (logStart > logEnd) throw violation("a log that ends before it starts");
  return {
    process: entry.number(tag.process),
    pid: entry.number(tag.pid, PID_MAX),
    argv: entry.strings(tag.argv, ARGV_MAX),
    user: entry.string(tag.user, 256),
    startedAtMs: Number(entry.wide(tag.startedNs) / 1_000_000n),
    running,
    exit: running ? null : { ...decodeExit(entry), timedOut: decodeTimedOut(entry) },
    logStart,
    logEnd,
  };
}

export async function sendSignal(
  epoch: Epoch,
  clock: Clock,
  target: { readonly process: number; readonly signal: number; readonly tree: boolean },
  deadlineMs: number,
): Promise<void> {
  return call(epoch, clock, {
    op: operation.signal,
    action: `send signal ${target.signal} to process ${target.process}`,
    control: false,
    deadlineMs: deadlineMs + ANSWER_GRACE_MS,
    fields: new FieldWriter()
      .number(tag.process, target.process)
      .number(tag.signal, target.signal)
      .flag(tag.tree, target.tree)
      .number(tag.deadlineMs, deadlineMs),
    decode: () => undefined,
  });
}

export async function forgetProcess(epoch: Epoch, clock: Clock, process: number): Promise<void> {
  return call(epoch, clock, {
    op: operation.forget,
    action: `forget process ${process}`,
    control: false,
    deadlineMs: USER_DEADLINE_MS,
    fields: new FieldWriter().number(tag.process, process),
    decode: () => undefined,
  });
}
