/**
 * A real daemon in a data directory of its own, driven from outside as a user would: through the built
 * command, the SDK and signals. Images and templates are shared with other runs; nothing else is.
 *
 * `end` stops everything and fails where something was left behind: that is a defect of the product.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Perdure } from "@perdure/sdk";

const perdured = resolve("packages/daemon/bin/perdured.mjs");
const cli = resolve("packages/cli/bin/perdure.mjs");
const READY_MS = 120_000;

/** Agents rest when a test says so, not when it takes long. */
const restless = { PERDURE_IDLE_AFTER: "never", PERDURE_CHECKPOINT_EVERY: "never" };

export interface Completed {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface StartOptions {
  /** Names that the daemon alone knows, and their addresses. */
  readonly hosts?: Readonly<Record<string, string>>;
}

export class DaemonUnderTest {
  readonly home: string;
  readonly socket: string;
  client: Perdure;
  #daemon: ChildProcess | null = null;
  #log = "";

  constructor(home = mkdtempSync(join(tmpdir(), "perdure-e2e-"))) {
    this.home = home;
    this.socket = join(home, "run", "perdure.sock");
    this.client = new Perdure({ socketPath: this.socket });
  }

  /** The daemon's log so far. */
  get log(): string {
    return this.#log;
  }

  /** What failures show of it. */
  get logTail(): string {
    return this.#log.slice(-4_000);
  }

  get pid(): number | undefined {
    return this.#daemon?.pid;
  }

  /** Starts the daemon; resolves when it answers. `environment` adds to the process's own. */
  async start(
    environment: Readonly<Record<string, string>> = {},
    { hosts }: StartOptions = {},
  ): Promise<void> {
    const argv = [process.execPath, perdured, "--home", this.home];
    const [program = "", ...args] = hosts === undefined ? argv : this.#knowing(hosts, argv);
    const child = spawn(program, args, {
      env: { ...process.env, ...restless, ...environment },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    this.#daemon = child;
    const append = (chunk: Buffer): void => {
      this.#log = (this.#log + chunk.toString()).slice(-1_000_000);
    };
    child.stdout.on("data", append);
    child.stderr.on("data", append);
    this.client = new Perdure({ socketPath: this.socket });
    await until(
      `the daemon to answer (${this.home})`,
      async () => {
        if (child.exitCode !== null || child.signalCode !== null) {
          throw new Error(`The daemon ended before it answered:\n${this.logTail}`);
        }
        const late = new Promise<null>((settled) => setTimeout(() => settled(null), 5_000).unref());
        return (await Promise.race([this.client.health().catch(() => null), late])) !== null;
      },
      READY_MS,
    );
  }

  /** The program with a hosts file of its own, in a mount namespace of its own. Takes root. */
  #knowing(hosts: Readonly<Record<string, string>>, argv: readonly string[]): string[] {
    const file = join(this.home, "hosts");
    const lines = Object.entries(hosts).map(([name, address]) => `${address} ${name}\n`);
    writeFileSync(file, readFileSync("/etc/hosts", "utf8") + lines.join(""));
    const script = 'mount --bind "$0" /etc/hosts && exec "$@"';
    return ["unshare", "--mount", "sh", "-c", script, file, ...argv];
  }

  /** Ends the daemon with `signal` and waits until it is gone. VMs go on. */
  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#daemon;
    if (child?.pid === undefined) return;
    if (child.exitCode === null && child.signalCode === null) child.kill(signal);
    await this.gone();
  }

  /** Resolves when the daemon process has ended, by whatever. @throws past the deadline */
  async gone(deadlineMs = READY_MS): Promise<void> {
    const child = this.#daemon;
    if (child === null) return;
    const ended = (): boolean => child.exitCode !== null || child.signalCode !== null;
    await until(`the daemon to end:\n${this.logTail}`, ended, deadlineMs);
    this.#daemon = null;
    await this.client.close();
  }

  async restart(environment: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.kill();
    await this.start(environment);
  }

  /** Runs the `perdure` command against this daemon. */
  perdure(args: readonly string[], input?: string): Promise<Completed> {
    return complete(
      spawn(process.execPath, [cli, ...args], {
        env: { ...process.env, PERDURE_HOME: this.home },
        stdio: ["pipe", "pipe", "pipe"],
      }),
      input,
    );
  }

  /** Runs a shell line inside and returns what it printed. @throws where it failed */
  async sh(agent: string, line: string, user = "root"): Promise<string> {
    const result = await this.client.run(agent, ["/bin/bash", "-c", line], { user });
    if (result.exitCode !== 0) {
      throw new Error(
        `"${line}" inside ${agent} ended with ${String(result.exitCode)}: ${text(result.stderr)}`,
      );
    }
    return text(result.stdout).trimEnd();
  }

  /** Host processes of VMs of this data directory. */
  vmPids(): number[] {
    return processesNaming(this.home).filter((pid) => /qemu/.test(commandOf(pid)));
  }

  /** Agents that have files in the data directory. */
  storedAgents(): string[] {
    return readdirSync(join(this.home, "agents"));
  }

  /** Removes every agent, stops the daemon, and lists what it left. Empty when all is well. */
  async end(): Promise<string[]> {
    if (this.#daemon !== null) {
      for await (const agent of this.client.list()) await this.client.remove(agent.name);
      await this.client.shutdown();
      await this.gone();
    }
    const left = processesNaming(this.home).map((pid) => `process ${pid}: ${commandOf(pid)}`);
    for (const pid of processesNaming(this.home)) process.kill(pid, "SIGKILL");
    rmSync(this.home, { recursive: true, force: true });
    return left;
  }
}

export function text(bytes: Uint8Array | string): string {
  return typeof bytes === "string" ? bytes : Buffer.from(bytes).toString();
}

/** Polls for something that has no event of its own, under a generous deadline. */
export async function until(
  what: string,
  condition: () => Promise<boolean> | boolean,
  deadlineMs = 60_000,
): Promise<void> {
  const endMs = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`Waited ${deadlineMs} ms for ${what}`);
    await new Promise((next) => setTimeout(next, 20));
  }
}

function processesNaming(home: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid && commandOf(pid).includes(home));
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch {
    return "";
  }
}

function complete(child: ChildProcess, input?: string): Promise<Completed> {
  return new Promise((resolveCompleted, reject) => {
    let stdout = "";
    let stderr = "";
    child.stdout?.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
    child.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
    child.on("error", reject);
    child.on("close", (code, signal) => resolveCompleted({ code, signal, stdout, stderr }));
    child.stdin?.end(input ?? "");
  });
}
