/** For tests: a program of the fake agent is a child process of the test, with a log with offsets. */
import { spawn } from "node:child_process";
import { access } from "node:fs/promises";
import { constants } from "node:os";
import { join } from "node:path";
import type { Writable } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import type { ProcessView } from "@perdure/protocol";
import type { Exec, ProcessOutput } from "../../../packages/daemon/src/core/command.ts";
import type { TerminalSize } from "../../../packages/daemon/src/core/ports/guest-link.ts";

const terminalProgram = join(import.meta.dirname, "terminal.py");

export interface FakeProcess {
  view(): ProcessView;
  /** Reads from `offset` on; ends when `signal` aborts. */
  output(offset: number, signal: AbortSignal): AsyncGenerator<ProcessOutput>;
  writeStdin(bytes: Uint8Array, end: boolean): Promise<void>;
  signal(signal: number): void;
  /** @throws `not_supported` where it has no terminal */
  resize(size: TerminalSize): void;
  /** Ends every reader with `interrupted`. */
  interrupt(reason: string): void;
}

export async function startFakeProcess(number: number, request: Exec): Promise<FakeProcess> {
  const { terminal, argv = [], user = "user" } = request;
  const [program = "", ...args] =
    terminal === undefined
      ? argv
      : ["python3", terminalProgram, `${terminal.rows}`, `${terminal.columns}`, ...argv];
  // Where there is a terminal another program starts it, and tells nothing.
  if (terminal !== undefined && argv[0]?.startsWith("/") === true) {
    await access(argv[0]).catch((error: unknown) => {
      throw new PerdureError("exec_failed", `Cannot start: ${(error as Error).message}`);
    });
  }
  const child = spawn(program, args, {
    env: { PATH: process.env["PATH"], ...request.env },
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
    stdio: [
      request.stdin || terminal !== undefined ? "pipe" : "ignore",
      ...(["pipe", "pipe"] as const),
      ...(terminal === undefined ? [] : (["pipe"] as const)),
    ],
  });
  await new Promise<void>((resolve, reject) => {
    child.once("spawn", resolve);
    child.once("error", ({ message }) => {
      reject(new PerdureError("exec_failed", `Cannot start "${program}": ${message}`));
    });
  });

  const log: ProcessOutput[] = [];
  let end = 0;
  const interrupts: string[] = [];
  let changed = Promise.withResolvers<undefined>();
  let exit: ProcessView["exit"] = null;
  let timedOut = false;
  const notify = (): void => {
    changed.resolve(undefined);
    changed = Promise.withResolvers();
  };
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream]?.on("data", (bytes: Buffer) => {
      log.push({ type: "output", stream, offset: end, bytes });
      end += bytes.length;
      notify();
    });
  }
  for (const stream of [child.stdin, child.stdio[3]]) stream?.on("error", () => undefined);
  const timer =
    request.timeoutMs === undefined
      ? undefined
      : setTimeout(() => {
          timedOut = true;
          child.kill("SIGKILL");
        }, request.timeoutMs);
  child.once("close", (exitCode, name) => {
    clearTimeout(timer);
    exit = { exitCode, signal: name === null ? null : constants.signals[name], timedOut };
    notify();
  });

  return {
    view: () => ({
      process: number,
      pid: child.pid ?? 0,
      argv: [...argv],
      user,
      startedAtMs: 1_700_000_000_000,
      running: exit === null,
      exit,
      logStart: 0,
      logEnd: end,
    }),
    output: async function* (offset, signal) {
      const aborted = new Promise<undefined>((resolve) => {
        signal.addEventListener("abort", () => {
          resolve(undefined);
        });
      });
      const seen = interrupts.length;
      let next = 0;
      let at = offset;
      while (!signal.aborted) {
        const wait = changed.promise;
        for (; next < log.length; next++) {
          const piece = log[next];
          if (piece?.type !== "output" || piece.offset + piece.bytes.length <= at) continue;
          const bytes = piece.bytes.subarray(Math.max(0, at - piece.offset));
          yield { ...piece, offset: at, bytes };
          at += bytes.length;
        }
        if (exit !== null) {
          yield { type: "exit", ...exit };
          return;
        }
        const reason = interrupts[seen];
        if (reason !== undefined) {
          yield { type: "interrupted", reason, offset: at };
          return;
        }
        await Promise.race([wait, aborted]);
      }
    },
    writeStdin: (bytes, last) =>
      new Promise((resolve, reject) => {
        const { stdin } = child;
        if (stdin === null || !stdin.writable) {
          reject(new PerdureError("stdin_closed", `Process ${number} does not read its input`));
          return;
        }
        stdin.write(bytes, () => {
          if (last) stdin.end();
          resolve();
        });
      }),
    signal: (signal) => {
      child.kill(signal);
    },
    resize: ({ rows, columns }) => {
      if (terminal === undefined) {
        throw new PerdureError("not_supported", `Process ${number} has no terminal`);
      }
      (child.stdio[3] as Writable).write(`${rows} ${columns}\n`);
    },
    interrupt: (reason) => {
      interrupts.push(reason);
      notify();
    },
  };
}
