/** One process of stock QEMU, with the files that it may save to or restore from already open. */
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import type { Cleanup } from "../cleanup.ts";
import { QEMU } from "../machine.ts";
import { killExactly, startTicks } from "../proc.ts";
import { Monitor } from "./monitor.ts";

export interface OpenFile {
  readonly path: string;
  readonly flags: "r" | "w";
}

/** The first descriptor after standard error. */
const FIRST_FD = 3;

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
   * Starts QEMU and connects to its monitor. The files become the descriptors `fd:3`, `fd:4` and so on:
   * the fastest way that QEMU has to a file, without a pipe through another program.
   */
  static async start(
    args: readonly string[],
    monitorPath: string,
    files: readonly OpenFile[],
    cleanup: Cleanup,
  ): Promise<StockProcess> {
    const fds = files.map(({ path, flags }) => openSync(path, flags));
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
      const monitor = await Monitor.connect(monitorPath, () => child.exitCode === null);
      return new StockProcess(child, pid, monitor, undo);
    } catch (error) {
      await undo();
      throw new Error(`Cannot start QEMU: ${complaint}`, { cause: error });
    }
  }

  /** The URI of the file with this index. */
  static uri(index: number): string {
    return `fd:${FIRST_FD + index}`;
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
