/** A daemon of the benchmark's own, in a data directory that is removed with everything it started. */
import { spawn, type ChildProcess } from "node:child_process";
import { openSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createConnection } from "node:net";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { daemonPaths, Perdure, type Health } from "@perdure/sdk";
import type { Cleanup } from "../cleanup.ts";
import { cpuTicks, findProcesses, killExactly, startTicks } from "../proc.ts";
import { takeLoopDelay, type LoopDelay } from "./loop-delay.ts";

const START_MS = 60_000;
const STOP_MS = 20_000;
const QUIET_MS = 300;
const QUIET_WITHIN_MS = 15_000;
const repository = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
const program = path.join(repository, "packages/daemon/bin/perdured.mjs");
const probes = ["loop-probe.ts", "garbage-probe.ts"].map((name) => new URL(name, import.meta.url));

export interface DaemonOptions {
  /** VM processes kept ready; the daemon's default where absent. */
  readonly spares?: number;
  /** As `--listen` takes it; where absent, it listens on its socket alone. */
  readonly listen?: string;
}

export class Daemon {
  readonly home: string;
  readonly client: Perdure;
  readonly #probePath: string;
  readonly #process: ChildProcess;
  #pid = 0;

  private constructor(home: string, client: Perdure, probePath: string, process: ChildProcess) {
    this.home = home;
    this.client = client;
    this.#probePath = probePath;
    this.#process = process;
  }

  /** Starts the daemon with `home` (which exists) as its data directory, and waits until it answers. */
  static async start(home: string, cleanup: Cleanup, options: DaemonOptions = {}): Promise<Daemon> {
    const { log, socket } = daemonPaths({ home });
    const [probePath, garbagePath] = [path.join(home, "probe"), path.join(home, "garbage-probe")];
    const output = openSync(path.join(home, "daemon.out"), "w");
    const child = spawn(process.execPath, [program], {
      env: {
        ...process.env,
        PERDURE_HOME: home,
        PERDURE_SOCKET: socket,
        PERDURE_BENCH_PROBE: probePath,
        // Agents rest when a bench says so.
        PERDURE_IDLE_AFTER: "never",
        PERDURE_CHECKPOINT_EVERY: "never",
        ...(options.spares === undefined ? {} : { PERDURE_SPARES: String(options.spares) }),
        ...(options.listen === undefined ? {} : { PERDURE_LISTEN: options.listen }),
        PERDURE_BENCH_GARBAGE: garbagePath,
        NODE_OPTIONS: [
          process.env["NODE_OPTIONS"] ?? "",
          ...probes.map(({ href }) => `--import ${href}`),
        ].join(" "),
      },
      stdio: ["ignore", output, output],
    });
    const client = new Perdure({ socketPath: socket });
    const daemon = new Daemon(home, client, probePath, child);
    const { pid } = child;
    if (pid === undefined) throw new Error("Cannot start the daemon");
    const start = startTicks(pid);
    const forget = cleanup.addAtExit(() => {
      killExactly(pid, start);
      daemon.killVms();
    });
    cleanup.add("the daemon", async () => {
      if (daemon.#isRunning) await daemon.#removeAwake().catch(() => undefined);
      await daemon.stop();
      killExactly(pid, start);
      daemon.killVms();
      forget();
    });
    daemon.#pid = (await daemon.#answers(log)).pid;
    return daemon;
  }

  /** Ends the daemon and leaves its data directory as it is. Idempotent. */
  async stop(): Promise<void> {
    await this.client.close();
    if (!this.#isRunning) return;
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.kill("SIGTERM");
    const late = new AbortController();
    await Promise.race([ended, sleep(STOP_MS, null, { signal: late.signal })]);
    late.abort();
  }

  get pid(): number {
    return this.#pid;
  }

  get #isRunning(): boolean {
    return this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Pids of the VM processes of this data directory: machines and spares. */
  vms(): number[] {
    return findProcesses((argument) => argument.includes(`path=${this.home}/`));
  }

  /** Ends what a daemon that failed left behind. */
  killVms(): void {
    for (const pid of this.vms()) killExactly(pid, startTicks(pid));
  }

  /**
   * Waits until `count` VM processes are there (those awake and the spares) and neither they nor the
   * daemon have work left, so that what is measured next is not what was left from before.
   */
  async quiet(count: number): Promise<void> {
    const end = performance.now() + QUIET_WITHIN_MS;
    let before: string | null = null;
    for (;;) {
      const vms = this.vms();
      const now = JSON.stringify([cpuTicks(this.pid), vms, vms.map(cpuTicks)]);
      if (vms.length >= count && now === before) return;
      if (performance.now() > end) {
        if (vms.length >= count) return; // Busy inside, as with a ticker.
        throw new Error(`${vms.length} VM processes after ${QUIET_WITHIN_MS} ms, not ${count}`);
      }
      before = now;
      await sleep(QUIET_MS);
    }
  }

  takeLoopDelay(): Promise<LoopDelay> {
    return takeLoopDelay(this.#probePath);
  }

  /** Has every thread of the daemon collect its garbage. */
  async collectGarbage(): Promise<void> {
    await text(createConnection(path.join(this.home, "garbage-probe")));
  }

  async #answers(log: string): Promise<Health> {
    const end = performance.now() + START_MS;
    for (;;) {
      try {
        return await this.client.health();
      } catch (error) {
        if (this.#isRunning && performance.now() < end) {
          await sleep(50);
          continue;
        }
        const said = await readFile(path.join(this.home, "daemon.out"), "utf8").catch(() => "");
        const more = await readFile(log, "utf8").catch(() => "");
        throw new Error(`The daemon does not answer:\n${said}${more}`, { cause: error });
      }
    }
  }

  async removeAgents(): Promise<void> {
    for await (const { id } of this.client.list()) await this.client.remove(id);
  }

  /** So that no VM is left; what sleeps goes with the data directory. */
  async #removeAwake(): Promise<void> {
    for await (const { id, state } of this.client.list()) {
      if (state !== "asleep") await this.client.remove(id);
    }
  }
}

/** Removes the data directory once nothing uses it any more. */
export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
}
