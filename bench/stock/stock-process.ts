/** One process of stock QEMU. */
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import path from "node:path";
import type { Cleanup } from "../cleanup.ts";
import { QEMU } from "../machine.ts";
import { killExactly, startTicks } from "../proc.ts";
import { Monitor } from "./monitor.ts";

/** The first descriptor after standard error. */
export const RESTORE_FD = 3;

export class StockProcess {
  readonly pid: number;
  readonly monitor: Monitor;
  readonly #ended: Promise<void>;
  readonly #forget: () => Promise<void>;

  private constructor(
    child: ChildProcess,
    pid: number,
    monitor: Monitor,
    forget: () => Promise<void>,
  ) {
    this.pid = pid;
    this.monitor = monitor;
    this.#ended = exited(child);
    this.#forget = forget;
  }

  /**
   * Starts QEMU and connects to its monitor.
   *
   * @param statePath is open as the descriptor `RESTORE_FD` in the process that shall restore from it
   */
  static async start(
    args: readonly string[],
    monitorPath: string,
    statePath: string | null,
    cleanup: Cleanup,
  ): Promise<StockProcess> {
    const fds = statePath === null ? [] : [openSync(statePath, "r")];
    const child = spawn(QEMU, args, { stdio: ["ignore", "ignore", "pipe", ...fds] });
    for (const fd of fds) closeSync(fd);
    let complaint = "";
    child.stderr?.on(
      "data",
      (chunk: Buffer) => (complaint = (complaint + chunk.toString()).slice(-2000)),
    );
    child.on("error", (error) => (complaint += error.message));
    const { pid } = child;
    if (pid === undefined) throw new Error(`Cannot start QEMU: ${complaint}`);
    const start = startTicks(pid);
    const kill = (): void => killExactly(pid, start);
    const dropExit = cleanup.addAtExit(kill);
    const undo = cleanup.add(`stock QEMU ${pid}`, async () => {
      const gone = exited(child);
      kill();
      await gone;
      dropExit();
    });
    try {
      const monitor = await Monitor.connect(
        monitorPath,
        path.dirname(monitorPath),
        () => child.exitCode === null,
      );
      return new StockProcess(child, pid, monitor, undo);
    } catch (error) {
      await undo();
      throw new Error(`Cannot start QEMU: ${complaint}`, { cause: error });
    }
  }

  async end(): Promise<void> {
    this.monitor.close();
    await this.#forget();
    await this.#ended;
  }
}

function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => child.once("exit", () => resolve()));
}
