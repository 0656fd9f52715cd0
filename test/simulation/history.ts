/**
 * One history: commands on a few agents, drawn from a seed, with faults, crashes and restarts between
 * and inside of them; after each deed everything is checked. The same seed gives the same history.
 */
import { PerdureError, type AgentState, type CheckpointId } from "@perdure/protocol";
import type { Command } from "../../packages/daemon/src/core/command.ts";
import { drawFault } from "./fault-plan.ts";
import { violationsOf } from "./invariant.ts";
import { knownDefect } from "./known-defect.ts";
import {
  checkpoint,
  create,
  drop,
  exec,
  fork,
  hold,
  hot,
  quarantine,
  recover,
  resize,
  restore,
  verb,
  wakeAt,
} from "./scene.ts";
import { World, type CrashTarget } from "./world.ts";

const names = ["a1", "a2", "a3"] as const;
const DEEDS = 30;

/** What no caller may be answered here: no byte is damaged in these histories. */
const neverAnswered = new Set([
  "internal",
  "checkpoint_digest_mismatch",
  "checkpoint_signature",
  "checkpoint_key_missing",
  "checkpoint_continued",
  "store_failed",
]);

/** What some kinds of command leave an agent as; the others leave it awake, but for those of `anyStateAfter`. */
const stateAfter: Partial<Record<Command["kind"], AgentState>> = {
  sleep: "asleep",
  stop: "stopped",
  quarantine: "quarantined",
};
const anyStateAfter: ReadonlySet<Command["kind"]> = new Set([
  "remove",
  "drop",
  "configure",
  "end-hold",
  "release",
  "hot",
  "gc",
]);

export class History {
  readonly world: World;
  /** What was done, for the message of a failure. */
  readonly deeds: string[] = [];
  /** A fault or crash may be under way: what is answered need not stand a moment later. */
  #disturbed = false;

  constructor(seed: number) {
    this.world = new World({ seed });
  }

  /** @throws at the first thing that is wrong, with all that led there */
  async run(): Promise<void> {
    // In some histories every sleep writes a base of the agent's own.
    if (this.world.random.chance(0.25)) this.world.ownBaseAboveBytes = 0;
    // In some, agents rest and are checkpointed by themselves.
    if (this.world.random.chance(0.3)) {
      Object.assign(this.world.defaults, { idleAfterMs: 60_000, checkpointEveryMs: 45_000 });
    }
    try {
      for (let i = 0; i < DEEDS; i++) await this.#deed();
      await this.#restart(false);
      await this.#check(false);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new Error(`${message}\n  ${this.deeds.join("\n  ")}`, { cause: error });
    }
  }

  async #deed(): Promise<void> {
    const { random, time } = this.world;
    const draw = random.next();
    if (draw < 0.08) await this.#disturbProcess();
    else if (draw < 0.13) await this.#restart(false);
    else if (draw < 0.15) await this.#restart(true);
    else if (draw < 0.18) this.#breakLinks();
    else if (draw < 0.22) await time.advance(random.below(600_000));
    else if (draw < 0.3) await this.#several();
    else if (draw < 0.45) await this.#withCrash();
    else if (draw < 0.6) await this.#withFault();
    else if (draw < 0.64) await this.#transfer();
    else await this.#command(await this.#drawCommand());
    await this.#check(true);
  }

  async #drawCommand(name = this.world.random.pick(names)): Promise<Command> {
    const { random, state } = this.world;
    const there = (await state.agentByName("default", name)) !== null;
    if (!there && random.chance(0.8)) {
      return create(name, random.pick(["checkpoint", "checkpoint", "disk", "ask"] as const));
    }
    switch (random.below(28)) {
      case 0:
        return create(name);
      case 1:
      case 2:
      case 3:
        return verb("sleep", name);
      case 4:
      case 5:
        return verb("wake", name);
      case 6:
        return verb("checkpoint", name);
      case 7:
        return checkpoint(name, `n${random.below(1000)}`);
      case 8:
        return verb("stop", name);
      case 9:
        return verb("start", name);
      case 10:
        return recover(name, random.pick(["checkpoint", "disk"] as const));
      case 12:
      case 13:
        return restore(name, await this.#drawCheckpoint(name));
      case 15:
        return fork(name, random.pick(names));
      case 16:
        return fork(name, random.pick(names), await this.#drawCheckpoint(name));
      case 17:
        return hold(name, 1_000 + random.below(600_000));
      case 18:
        return wakeAt(name, this.world.time.nowMs + random.below(900_000));
      case 19:
        return random.chance(0.5) ? quarantine(name) : verb("release", name);
      case 20:
        return exec(name, "wait-for", String(random.below(900_000)));
      case 21:
        return hot(
          name,
          await this.#drawCheckpoint(name),
          random.pick(["fork", "restore"] as const),
          random.below(3),
        );
      case 22:
        return verb("gc", name);
      case 23: {
        const memoryBytes = (64 + 64 * random.below(6)) * 4096;
        const diskBytes = 1024 * 1024 * (1 + random.below(4));
        return resize(
          name,
          random.chance(0.6) ? { diskBytes } : { memoryBytes, cpus: 1 + random.below(2) },
        );
      }
      case 14:
        return drop(name, await this.#drawCheckpoint(name));
      case 11:
        return random.chance(0.5) ? verb("remove", name) : verb("wake", name);
      default:
        return exec(name, "count", String(1 + random.below(5)));
    }
  }

  /** One that is there, by id or name, or none. */
  async #drawCheckpoint(name: string): Promise<string> {
    const { random, state } = this.world;
    const agent = await state.agentByName("default", name);
    const rows = agent === null ? [] : await state.checkpoints(agent.id);
    if (rows.length === 0 || random.chance(0.05)) return "nothing";
    const row = random.pick(rows);
    return random.chance(0.5) ? row.id : (row.name ?? row.id);
  }

  /** Executes, and looks whether the answer is true at the moment it is given (I10). */
  async #command(command: Command): Promise<void> {
    const name =
      command.kind === "create"
        ? command.name
        : command.kind === "fork"
          ? (command.names[0] ?? "")
          : command.agent;
    const line = this.deeds.push(`${command.kind} ${name}`) - 1;
    const note = (outcome: string): void => {
      this.deeds[line] = `${command.kind} ${name} → ${outcome}`;
    };
    const wanted = command.kind === "restore" ? await this.#rowOf(name, command.checkpoint) : null;
    try {
      const answer = await this.world.executeOrDie(command);
      note(answer === null ? "the daemon died" : "done");
      if (answer !== null && !this.#disturbed) await this.#expectTrue(command.kind, name);
    } catch (error) {
      if (!(error instanceof PerdureError)) throw error;
      note(`${error.code}: ${error.message}`);
      if (neverAnswered.has(error.code)) throw error;
      if (wanted !== null && (await this.world.state.checkpoint(wanted)) === null) {
        throw new Error(`I2: a restore that failed took its checkpoint with it`, { cause: error });
      }
    }
  }

  async #rowOf(name: string, checkpoint: string): Promise<CheckpointId | null> {
    const { state } = this.world;
    const agent = await state.agentByName("default", name);
    const rows = agent === null ? [] : await state.checkpoints(agent.id);
    return rows.find((row) => row.id === checkpoint || row.name === checkpoint)?.id ?? null;
  }

  async #expectTrue(kind: Command["kind"], name: string): Promise<void> {
    if (anyStateAfter.has(kind)) return;
    const { state, lease } = await this.world.agent(name);
    const wanted = stateAfter[kind] ?? "awake";
    if (state !== wanted) throw new Error(`I10: ${kind} was answered, ${name} is ${state}`);
    if (wanted !== "awake") return;
    const guest = await this.world.guest(name);
    if (lease?.letOut !== true || !guest.running || guest.memory.frozen) {
      throw new Error(`I10: ${kind} was answered, ${name} does not run`);
    }
  }

  async #several(): Promise<void> {
    const { world } = this;
    const { random } = world;
    const name = random.pick(names);
    const commands: Command[] = [];
    for (let i = 2 + random.below(4); i > 0; i--) commands.push(await this.#drawCommand(name));
    this.deeds.push(`at once on ${name}: ${commands.map(({ kind }) => kind).join(", ")}`);
    const answers = await world.run(
      Promise.allSettled(commands.map((command) => world.engine.execute(command))),
    );
    for (const answer of answers) {
      if (answer.status === "fulfilled") continue;
      const error = PerdureError.from(answer.reason);
      if (neverAnswered.has(error.code)) throw error;
    }
  }

  async #withCrash(): Promise<void> {
    const { random } = this.world;
    const command = await this.#drawCommand();
    if (knownDefect(command.kind, "crash") !== null) return;
    const target = random.pick<CrashTarget>(["daemon", "vmm", "both"]);
    const nth = random.below(12);
    let passed = 0;
    this.world.atStep = (step) => {
      if (passed++ !== nth) return null;
      this.deeds.push(`the end of ${target} at ${step}`);
      return target;
    };
    this.#disturbed = true;
    await this.#command(command);
    this.world.atStep = null;
    await this.#settle();
  }

  async #withFault(): Promise<void> {
    const { world } = this;
    const { point, mode, skip } = drawFault(world.random);
    const command = await this.#drawCommand();
    if (knownDefect(command.kind, point) !== null) return;
    this.deeds.push(`${mode} ${point} after ${skip}`);
    if (mode === "hang") world.faults.hang(point, { skip });
    else {
      const code = point.startsWith("checkpoints.") ? "disk_full" : "machine_failed";
      const error = new PerdureError(code, `injected at ${point}`);
      world.faults.arm(point, { kind: "fail", error }, { skip });
    }
    this.#disturbed = true;
    await this.#command(command);
    await this.#settle();
    // What the store refused stays undone until a daemon starts.
    if (point === "state.commit") await world.restart();
  }

  /** An agent goes through a file and becomes another one, with a crash or a fault on the way now and then. */
  async #transfer(): Promise<void> {
    const { world } = this;
    const { random, engine } = world;
    const there = (await world.state.allAgents()).filter(({ state }) => state !== "removed");
    if (there.length === 0) return;
    const free = names.filter((each) => there.every((agent) => agent.name !== each));
    const name = random.pick(free.length > 0 && random.chance(0.9) ? free : names);
    const all = random.chance(0.5);
    const rows = (await Promise.all(there.map(({ id }) => world.state.checkpoints(id)))).flat();
    const row = rows.length > 0 && random.chance(0.9) ? random.pick(rows) : null;
    const origin = there.find(({ id }) => id === row?.agent) ?? random.pick(there);
    const from = origin.name;
    const isNewest = origin.state !== "awake" && origin.head?.checkpoint === row?.id;
    const checkpoint = row === null || isNewest ? {} : { checkpoint: row.id };
    const target = { tenant: "default", passphrase: null };
    const deed = `export ${from}, import ${name}`;
    const line = this.deeds.push(deed) - 1;
    this.#disturbed = true;
    if (random.chance(0.3)) {
      const nth = random.below(10);
      let passed = 0;
      world.atStep = () => (passed++ === nth ? "daemon" : null);
    } else if (random.chance(0.4)) world.faults.fail(drawFault(random).point);
    const work = async (): Promise<string> => {
      const file = await engine.export({
        ...target,
        ...checkpoint,
        agent: from,
        all,
        withImage: true,
      });
      await engine.import({ ...target, name }, file.bytes);
      return "done";
    };
    const outcome = work().catch((error: unknown) => {
      if (!(error instanceof PerdureError) || neverAnswered.has(error.code)) throw error;
      return `${error.code}: ${error.message}`;
    });
    const died = world.life.ended.then(() => "the daemon died");
    this.deeds[line] = `${deed} → ${await world.run(Promise.race([outcome, died]))}`;
    world.atStep = null;
    await this.#settle();
  }

  async #disturbProcess(): Promise<void> {
    const { random, host, time } = this.world;
    const { processes } = host;
    if (processes.length === 0) return;
    const process = random.pick(processes);
    const kind = process.running
      ? random.pick(["exited", "exited", "panic", "reset", "shutdown"] as const)
      : "exited";
    this.deeds.push(`${kind} of ${process.record.id}`);
    process.happen(kind);
    await time.flush();
  }

  async #restart(hostToo: boolean): Promise<void> {
    this.deeds.push(hostToo ? "the host goes down" : "kill -9 of the daemon");
    this.world.life.end();
    if (hostToo) this.world.host.reboot();
    await this.world.restart();
  }

  #breakLinks(): void {
    this.deeds.push("the links break");
    this.world.dropLinks();
  }

  async #settle(): Promise<void> {
    const { world } = this;
    world.faults.clear();
    this.#disturbed = false;
    await world.time.flush();
    if (world.life.over) await world.restart();
  }

  /** `leftovers`: what a failed verb could not take away may lie there until a daemon starts. */
  async #check(leftovers: boolean): Promise<void> {
    await this.#settle();
    await this.world.time.flush();
    const found = await violationsOf(this.world, { leftovers });
    if (found.length > 0) throw new Error(found.join("\n"));
  }
}
