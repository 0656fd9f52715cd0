/** One agent of the benchmark's daemon. */
import path from "node:path";
import type { WakeReport } from "@perdure/sdk";
import type { Inside, Piece, Program } from "../inside.ts";
import { findCounter } from "../ticker.ts";
import { guestMemory } from "../proc.ts";
import type { Daemon } from "./daemon.ts";

export interface AgentPlan {
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

export interface WakeTimes {
  /** From the call until its answer, at the client. */
  readonly clientMs: number;
  readonly report: WakeReport;
}

let count = 0;

export class Agent implements Inside {
  readonly name: string;
  readonly id: string;
  readonly #daemon: Daemon;
  readonly #plan: AgentPlan;

  private constructor(daemon: Daemon, plan: AgentPlan, name: string, id: string) {
    this.#daemon = daemon;
    this.#plan = plan;
    this.name = name;
    this.id = id;
  }

  static async create(daemon: Daemon, plan: AgentPlan): Promise<Agent> {
    const name = `bench-${count++}`;
    const { memoryBytes, diskBytes } = plan;
    const { id } = await daemon.client.create({ name, memoryBytes, diskBytes, cpus: 1 });
    return new Agent(daemon, plan, name, id);
  }

  /** Where its files are. */
  get folder(): string {
    return path.join(this.#daemon.home, "agents", this.id);
  }

  async start(argv: readonly string[]): Promise<Program> {
    const handle = await this.#daemon.client.exec(this.name, argv, { user: "user" });
    return {
      output: (offset): AsyncIterable<Piece> => handle.output({ offset }),
      signal: (number) => handle.signal(number, { tree: false }),
    };
  }

  async writeFile(at: string, bytes: Uint8Array): Promise<void> {
    await this.#daemon.client.writeFile(this.name, at, bytes);
  }

  async sleep(): Promise<number> {
    const begin = performance.now();
    await this.#daemon.client.sleep(this.name);
    return performance.now() - begin;
  }

  async wake(): Promise<WakeTimes> {
    const begin = performance.now();
    const { report } = await this.#daemon.client.wake(this.name);
    const clientMs = performance.now() - begin;
    if (report?.route !== "wake") throw new Error("The wake was another route");
    return { clientMs, report };
  }

  /** A live checkpoint. @returns the pause as the daemon measured it */
  async checkpoint(): Promise<number> {
    const { pauseMs } = await this.#daemon.client.checkpoint(this.name);
    if (pauseMs === null) throw new Error("A live checkpoint tells no pause");
    return pauseMs;
  }

  async remove(): Promise<void> {
    await this.#daemon.client.remove(this.name);
  }

  /** The VM process in which `mark` ticks, and where. */
  ticker(mark: Buffer): { pid: number; counter: number } {
    for (const pid of this.#daemon.vms()) {
      const counter = findCounter(pid, this.#plan.memoryBytes, mark);
      if (counter !== null) return { pid, counter };
    }
    throw new Error("The ticker is in no VM");
  }

  /** The VM process of the one agent that is awake: the one whose guest wrote most. */
  pid(): number {
    const { memoryBytes } = this.#plan;
    const written = this.#daemon
      .vms()
      .map((pid) => ({ pid, bytes: guestMemory(pid, memoryBytes).anonymousBytes }))
      .sort((a, b) => b.bytes - a.bytes)[0];
    if (written === undefined) throw new Error("No VM runs");
    return written.pid;
  }
}
