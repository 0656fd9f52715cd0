/**
 * Programs of a sandbox: E2B's Process service over exec, output, input and signals. A program lives on when the
 * stream that started it ends, however that ends; its time-out is its own.
 */
import { Code, ConnectError } from "@connectrpc/connect";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { PerdureError } from "@perdure/protocol";
import type { Exit, ProcessView } from "@perdure/protocol";
import type { Commands, ProcessOutput } from "../../core/command.ts";
import type { Caller } from "./caller.ts";
import type { E2bContext } from "./e2b-context.ts";
import { keepaliveMs, withKeepalive } from "./keepalive.ts";
import { ProgramNotes, tagVariable } from "./program-notes.ts";
import { sandboxIdOf } from "./sandbox-id.ts";
import { assertGoesOn } from "./stream-end.ts";
import type { Process, ProcessInput, ProcessSelector, StartRequest } from "./schema/process.mjs";

/** Output that a program may be ahead of its readers before some of it is not kept. */
const LOG_BYTES = 16 * 1024 * 1024;
const TERMINAL_SIZE_MAX = 4_096;

type Service = ServiceImpl<typeof Process>;
type Event = Record<string, unknown>;

export function processService(
  { commands, clock, closing }: E2bContext,
  callerOf: (context: HandlerContext) => Caller,
): Service {
  const notes = new ProgramNotes(commands);

  async function find(
    { target }: Caller,
    selected: ProcessSelector | undefined,
    among: "running" | "all",
  ): Promise<ProcessView> {
    const { selector } = selected ?? {};
    const views = await commands.processes(target);
    // The newest first: pids are used again.
    for (const view of views.toReversed()) {
      if (among === "running" && !view.running) continue;
      if (selector?.case === "pid" && view.pid === selector.value) return view;
      if (selector?.case !== "tag") continue;
      if ((await notes.of(target, view)).tag === selector.value) return view;
    }
    const what = selector?.case === undefined ? "nothing" : `${selector.case} ${selector.value}`;
    throw new PerdureError("process_not_found", `No program of the sandbox has ${what}`);
  }

  async function* follow(
    { target }: Caller,
    { process, pid, offset, isTerminal }: Followed,
    context: HandlerContext,
  ): AsyncGenerator<Event> {
    yield { case: "start", value: { pid } };
    const signal = AbortSignal.any([context.signal, closing]);
    const pieces = await commands.output({ ...target, process }, offset, signal);
    const everyMs = keepaliveMs(context.requestHeader.get("keepalive-ping-interval"));
    for await (const piece of withKeepalive(pieces, everyMs, clock)) {
      if (piece === null) yield { case: "keepalive", value: {} };
      else yield eventOf(piece, isTerminal);
    }
    assertGoesOn(context.signal, closing);
  }

  return {
    list: async (_request, context) => {
      const { target } = callerOf(context);
      const views = await commands.processes(target);
      const processes = [];
      for (const view of views.filter(({ running }) => running)) {
        const { pid, argv } = view;
        const [cmd = "", ...args] = argv;
        const { tag, envs, cwd } = await notes.of(target, view);
        const config = { cmd, args, envs: { ...envs }, ...(cwd === null ? {} : { cwd }) };
        processes.push({ pid, config, ...(tag === null ? {} : { tag }) });
      }
      return { processes };
    },

    start: async function* (request, context) {
      const caller = callerOf(context);
      const { process, pid } = await start(commands, caller, request, context);
      const { envs = {}, cwd = null } = request.process ?? {};
      const isTerminal = request.pty !== undefined;
      notes.set(
        caller.target,
        { process, pid },
        { tag: request.tag ?? null, envs, cwd, isTerminal },
      );
      const followed = { process, pid, offset: 0, isTerminal };
      for await (const event of follow(caller, followed, context)) yield { event: { event } };
    } as Service["start"],

    connect: async function* (request, context) {
      const caller = callerOf(context);
      const view = await find(caller, request.process, "all");
      const { process, pid, logEnd } = view;
      const { isTerminal } = await notes.of(caller.target, view);
      const followed = { process, pid, offset: logEnd, isTerminal };
      for await (const event of follow(caller, followed, context)) yield { event: { event } };
    } as Service["connect"],

    update: async ({ process: selected, pty }, context) => {
      const caller = callerOf(context);
      const { process } = await find(caller, selected, "running");
      if (pty?.size !== undefined) {
        const { rows, cols } = pty.size;
        const size = terminalSize(rows, cols);
        await commands.execute({ kind: "resize", ...caller.target, process, ...size });
      }
      return {};
    },

    sendInput: async ({ process: selected, input }, context) => {
      const caller = callerOf(context);
      const { process } = await find(caller, selected, "running");
      await commands.writeStdin(
        { ...caller.target, process },
        bytesOf(input),
        false,
        context.signal,
      );
      return {};
    },

    streamInput: async (requests, context) => {
      const caller = callerOf(context);
      let process: number | null = null;
      for await (const { event } of requests) {
        if (event.case === "start") {
          ({ process } = await find(caller, event.value.process, "running"));
        } else if (event.case === "data") {
          if (process === null) throw inputWithoutStart();
          await commands.writeStdin(
            { ...caller.target, process },
            bytesOf(event.value.input),
            false,
            context.signal,
          );
        }
      }
      return {};
    },

    sendSignal: async ({ process: selected, signal }, context) => {
      const caller = callerOf(context);
      const { process } = await find(caller, selected, "running");
      const number: number = signal;
      if (number !== 15 && number !== 9) {
        throw new PerdureError(
          "bad_request",
          `Cannot send signal ${number}: only 15 and 9 are known`,
        );
      }
      const command = { ...caller.target, process, signal: number, tree: true };
      await commands.execute({ kind: "signal", ...command });
      return {};
    },

    closeStdin: async ({ process: selected }, context) => {
      const caller = callerOf(context);
      const { process } = await find(caller, selected, "running");
      await commands.writeStdin(
        { ...caller.target, process },
        new Uint8Array(0),
        true,
        context.signal,
      );
      return {};
    },
  };
}

interface Followed {
  readonly process: number;
  readonly pid: number;
  readonly offset: number;
  readonly isTerminal: boolean;
}

async function start(
  commands: Commands,
  { id, target, user }: Caller,
  { process: config, tag, pty, stdin }: StartRequest,
  context: HandlerContext,
): Promise<{ process: number; pid: number }> {
  if (config === undefined || config.cmd === "") {
    throw new PerdureError("bad_request", "Cannot start a program: none is named");
  }
  const { cmd, args, envs, cwd } = config;
  // The stream ends with it, the program with its own: also where nobody reads the stream any more.
  const timeoutMs = context.timeoutMs();
  const { rows = 0, cols = 0 } = pty?.size ?? {};
  return commands.execute({
    kind: "exec",
    ...target,
    argv: [cmd, ...args],
    env: {
      E2B_SANDBOX: "true",
      E2B_SANDBOX_ID: sandboxIdOf(id),
      ...tagVariable(tag ?? null),
      ...envs,
    },
    ...(cwd === undefined || cwd === "" ? {} : { cwd }),
    ...(user === null ? {} : { user }),
    ...(timeoutMs === undefined ? {} : { timeoutMs: Math.max(1, Math.ceil(timeoutMs)) }),
    stdin: stdin ?? true,
    logBytes: LOG_BYTES,
    ...(pty === undefined ? {} : { terminal: terminalSize(rows, cols) }),
  });
}

/** Clients may send none at all. */
function terminalSize(rows: number, columns: number): { rows: number; columns: number } {
  const bound = (size: number, otherwise: number): number =>
    size === 0 ? otherwise : Math.min(size, TERMINAL_SIZE_MAX);
  return { rows: bound(rows, 24), columns: bound(columns, 80) };
}

/** @throws where the stream ends before the program */
function eventOf(piece: ProcessOutput, isTerminal: boolean): Event {
  switch (piece.type) {
    case "output": {
      const kind = isTerminal ? "pty" : piece.stream;
      return { case: "data", value: { output: { case: kind, value: piece.bytes } } };
    }
    case "cut":
      throw new ConnectError(
        `Output from byte ${piece.from} to ${piece.to} was not kept: it came faster than it was read`,
        Code.DataLoss,
      );
    case "interrupted":
      throw new PerdureError(
        "interrupted",
        `The stream ends (${piece.reason}); the program is kept, and "connect" with its pid goes on`,
      );
    case "exit":
      return { case: "end", value: endOf(piece) };
  }
}

export function endOf({ exitCode, signal, timedOut }: Exit) {
  if (timedOut) throw new ConnectError("The program's time-out has passed", Code.DeadlineExceeded);
  if (exitCode === null) {
    const status = `signal: ${signalNames[signal ?? 0] ?? String(signal)}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${exitCode}`;
  return { exitCode, exited: true, status, ...(exitCode === 0 ? {} : { error: status }) };
}

/** As clients know them. */
const signalNames: Readonly<Record<number, string>> = {
  1: "hangup",
  2: "interrupt",
  3: "quit",
  6: "aborted",
  9: "killed",
  11: "segmentation fault",
  13: "broken pipe",
  14: "alarm clock",
  15: "terminated",
};

function bytesOf(sent: ProcessInput | undefined): Uint8Array {
  return sent?.input.value ?? new Uint8Array(0);
}

function inputWithoutStart(): PerdureError {
  return new PerdureError("bad_request", "Cannot take input: no program was named before it");
}
