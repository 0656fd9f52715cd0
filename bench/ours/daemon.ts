/** A daemon of the benchmark's own, in a data directory that is removed with everything it started. */
import { spawn } from "node:child_process";
import { openSync } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { daemonPaths, Perdure } from "@perdure/sdk";
import type { Cleanup } from "../cleanup.ts";
import { cpuTicks, findProcesses, killExactly, startTicks } from "../proc.ts";
import { takeLoopDelay, type LoopDelay } from "./loop-delay.ts";

const START_MS = 60_000;
const STOP_MS = 20_000;
const QUIET_MS = 300;
const QUIET_WITHIN_MS = 15_000;
const repository = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
const program = path.join(repository, "packages/daemon/bin/perdured.mjs");
const probe = path.join(path.dirname(fileURLToPath(import.meta.url)), "loop-probe.ts");

export class Daemon {
  readonly home: string;
  readonly client: Perdure;
  readonly #probePath: string;

  private constructor(home: string, client: Perdure, probePath: string) {
    this.home = home;
    this.client = client;
    this.#probePath = probePath;
  }

  /** Starts the daemon with `home` (which exists) as its data directory, and waits until it answers. */
  static async start(home: string, cleanup: Cleanup): Promise<Daemon> {
    const { log, socket } = daemonPaths({ home });
    const probePath = path.join(home, "probe");
    const output = openSync(path.join(home, "daemon.out"), "w");
    const child = spawn(process.execPath, [program], {
      env: {
        ...process.env,
        PERDURE_HOME: home,
        PERDURE_SOCKET: socket,
        PERDURE_BENCH_PROBE: probePath,
        NODE_OPTIONS: `${process.env["NODE_OPTIONS"] ?? ""} --import ${pathToFileURL(probe).href}`,
      },
      stdio: ["ignore", output, output],
    });
    const client = new Perdure({ socketPath: socket });
    const daemon = new Daemon(home, client, probePath);
    const { pid } = child;
    if (pid === undefined) throw new Error("Cannot start the daemon");
    const start = startTicks(pid);
    cleanup.addAtExit(() => {
      killExactly(pid, start);
      daemon.killVms();
    });
    cleanup.add("the daemon", async () => {
      await daemon.removeAgents().catch(() => undefined);
      await client.close();
      if (child.exitCode === null && child.signalCode === null) {
        const ended = new Promise((resolve) => child.once("exit", resolve));
        child.kill("SIGTERM");
        const late = new AbortController();
        await Promise.race([ended, sleep(STOP_MS, null, { signal: late.signal })]);
        late.abort();
        killExactly(pid, start);
      }
      daemon.killVms();
    });
    await daemon.#answers(() => child.exitCode === null && child.signalCode === null, log);
    return daemon;
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
    const { pid } = await this.client.health();
    const end = performance.now() + QUIET_WITHIN_MS;
    let before: string | null = null;
    for (;;) {
      const vms = this.vms();
      const now = JSON.stringify([cpuTicks(pid), vms, vms.map(cpuTicks)]);
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

  async #answers(alive: () => boolean, log: string): Promise<void> {
    const end = performance.now() + START_MS;
    for (;;) {
      try {
        await this.client.health();
        return;
      } catch (error) {
        if (alive() && performance.now() < end) {
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
}

/** Removes the data directory once nothing uses it any more. */
export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 5 });
}
