/** One agent of the benchmark's daemon. */
import path from "node:path";
import type { AgentView, LetOut, WakeReport } from "@perdure/sdk";
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

type Route = WakeReport["route"];

let count = 0;

async function timed(route: Route, call: () => Promise<LetOut>): Promise<WakeTimes> {
  const begin = performance.now();
  const { report } = await call();
  const clientMs = performance.now() - begin;
  if (report?.route !== route) throw new Error(`The ${route} was another route`);
  return { clientMs, report };
}

export class Agent implements Inside {
  readonly name: string;
  readonly id: AgentView["id"];
  readonly #daemon: Daemon;
  readonly #plan: AgentPlan;

  private constructor(daemon: Daemon, plan: AgentPlan, name: string, id: AgentView["id"]) {
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

  wake(): Promise<WakeTimes> {
    return timed("wake", () => this.#daemon.client.wake(this.name));
  }

  /** Goes back to a checkpoint, and forgets what the daemon kept of the time since. */
  async restore(checkpoint: string): Promise<WakeTimes> {
    const restored = await timed("restore", () =>
      this.#daemon.client.restore(this.name, checkpoint),
    );
    const kept = restored.report.otherCut?.keptAs;
    if (kept !== undefined) await this.drop(kept);
    return restored;
  }

  /** Another agent, from a checkpoint of this one or from what it is now. */
  async fork(checkpoint?: string): Promise<WakeTimes & { readonly fork: Agent }> {
    const name = `bench-${count++}`;
    const { client } = this.#daemon;
    const options = checkpoint === undefined ? {} : { checkpoint };
    const times = await timed("fork", () => client.fork(this.name, name, options));
    return { ...times, fork: new Agent(this.#daemon, this.#plan, name, times.report.agent) };
  }

  /** Of when it was let out last. */
  async report(): Promise<WakeReport> {
    const report = await this.#daemon.client.report(this.name);
    if (report === null) throw new Error("It was never let out");
    return report;
  }

  /** A live checkpoint. @returns the pause as the daemon measured it */
  async checkpoint(name?: string): Promise<number> {
    const options = name === undefined ? {} : { name };
    const { pauseMs } = await this.#daemon.client.checkpoint(this.name, options);
    if (pauseMs === null) throw new Error("A live checkpoint tells no pause");
    return pauseMs;
  }

  async drop(checkpoint: string): Promise<void> {
    await this.#daemon.client.drop(this.name, checkpoint);
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
