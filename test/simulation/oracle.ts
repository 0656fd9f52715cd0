/**
 * The oracle, asked each time that a let-out is recorded: is the guest exactly where its report says
 * that it was cut? With memory: counter, disk and (where the cut was frozen) not one tick more (I4, C11,
 * C12). Without: every counted number that had reached that disk is there.
 */
import type { AgentId, CheckpointId } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { CheckpointDraft } from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { FakeHost } from "../../packages/daemon/src/substrate/fake/fake-host.ts";
import { momentOf, type CutLog } from "./cut-log.ts";
import { Guest } from "./guest.ts";

export class Oracle {
  readonly violations: string[] = [];
  readonly #host: FakeHost;
  readonly #cuts: CutLog;
  /** Machine → the agent that was let out on it. */
  readonly #agents = new Map<string, AgentId>();
  /** What the newest disk of each agent holds. */
  readonly #newest = new Map<AgentId, number>();

  /** What a checkpoint without memory holds. */
  readonly #disks = new Map<CheckpointId, number>();

  constructor(host: FakeHost, cuts: CutLog) {
    this.#host = host;
    this.#cuts = cuts;
  }

  /** A guest counted: memory and disk agree on `counter` from here on. */
  counted(machine: string, counter: number): void {
    const agent = this.#agents.get(machine);
    if (agent !== undefined) this.#newest.set(agent, counter);
  }

  /** The newest disk is about to be written as a checkpoint of its own. */
  keptDisk({ agent, checkpoint, importedFrom }: CheckpointDraft): void {
    const disk =
      importedFrom === undefined ? this.#newest.get(agent) : this.#diskOf(importedFrom.checkpoint);
    this.#disks.set(checkpoint, disk ?? 0);
  }

  #diskOf(checkpoint: CheckpointId): number | undefined {
    return this.#disks.get(checkpoint) ?? this.#cuts.of(checkpoint).onDisk;
  }

  letOut(agent: Agent): void {
    const { lease, report } = agent;
    if (lease === null || report === null) return;
    this.#agents.set(lease.machine.id, agent.id);
    const guest = this.#host.process(lease.machine.id)?.guest;
    if (!(guest instanceof Guest)) return;
    const { counter, ticks, onDisk, reseeds } = momentOf(guest);
    const expect = (what: string, wanted: number, got: number): void => {
      if (wanted === got) return;
      const { route, generation } = report;
      this.violations.push(
        `oracle: ${agent.name} generation ${generation} (${route}): ${what} is ${got}, not ${wanted}`,
      );
    };
    if (!guest.memory.frozen) this.violations.push(`I4: ${agent.name} ran before its let-out`);
    // A boot of this simulation finds no host name on its disk.
    const { hostname } = guest.memory;
    if (hostname !== agent.name && hostname !== "image") {
      this.violations.push(`I3: ${agent.name} was let out under the identity of ${hostname}`);
    }
    expect("the generation inside", agent.generation, guest.memory.generation);
    if (report.cut.memory && report.cut.checkpoint !== null) {
      const then = this.#cuts.of(report.cut.checkpoint);
      expect("the times that entropy was added", then.reseeds + 1, reseeds);
      expect("the counter", then.counter, counter);
      expect("the counter on disk", then.onDisk, onDisk);
      if (then.frozen) expect("the ticks", then.ticks, ticks);
    } else {
      expect("the times that entropy was added", 1, reseeds);
      const isOlder = ["restore", "fork", "import"].includes(report.route);
      const kept = isOlder ? report.cut.checkpoint : null;
      const disk = kept === null ? this.#newest.get(agent.id) : this.#diskOf(kept);
      expect("the counter", disk ?? 0, counter);
      expect("the counter on disk", disk ?? 0, onDisk);
    }
    this.#newest.set(agent.id, onDisk);
  }
}
