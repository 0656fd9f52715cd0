/** The verbs that move an agent from one state to another. */
import { Option } from "commander";
import type { Command } from "commander";
import type { AgentView, LetOut } from "@perdure/sdk";
import { readPolicy } from "../egress-rule.ts";
import { formatDuration, formatSize, parseCount } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { Session, SharedOptions } from "../session.ts";

interface Verb {
  readonly name: string;
  readonly description: string;
  readonly doing: string;
  readonly run: (session: Session, agent: string) => Promise<{ value: unknown; text: string }>;
}

const verbs: readonly Verb[] = [
  {
    name: "sleep",
    description: "keep the agent's memory and disk in a checkpoint and end its VM",
    doing: "Sleeping",
    run: async ({ perdure }, agent) => stateOf(await perdure.sleep(agent)),
  },
  {
    name: "wake",
    description: "wake the agent exactly where it was",
    doing: "Waking",
    run: (session, agent) => letOutOnce(session, agent, "wake"),
  },
  {
    name: "stop",
    description: "shut the agent down and keep its disk",
    doing: "Stopping",
    run: async ({ perdure }, agent) => stateOf(await perdure.stop(agent)),
  },
  {
    name: "start",
    description: "boot the agent from its disk, without memory",
    doing: "Starting",
    run: (session, agent) => letOutOnce(session, agent, "start"),
  },
  {
    name: "remove",
    description: "destroy the agent's key and files; there is no way back",
    doing: "Removing",
    run: async ({ perdure }, agent) => stateOf(await perdure.remove(agent)),
  },
];

export function addVerbCommands(program: Command): void {
  for (const { name, description, doing, run } of verbs) {
    const command = program
      .command(name)
      .description(description)
      .argument("<agent>", "name or id")
      .addHelpText("after", `\nExample:\n  perdure ${name} builder`);
    addSharedOptions(command).action(async (agent: string, options: SharedOptions) => {
      await carryOut(options, `${doing} agent "${agent}"`, (session) => run(session, agent));
    });
  }
  addRecoverCommand(program);
  addCheckpointCommand(program);
  addRestoreCommand(program);
  addForkCommand(program);
  addHotCommand(program);
  addDropCommand(program);
}

/** Runs a verb with progress, and prints what came of it. */
export async function carryOut(
  options: SharedOptions,
  doing: string,
  run: (session: Session) => Promise<{ value: unknown; text: string }>,
): Promise<void> {
  await withSession(options, async (session) => {
    const { value, text } = await session.during(doing, run(session));
    session.print(value, text);
    return 0;
  });
}

function addForkCommand(program: Command): void {
  const command = program
    .command("fork")
    .description("make a new agent that goes on from here under an identity of its own")
    .argument("<agent>", "name or id")
    .argument("<name>", "of the new agent")
    .option("--checkpoint <checkpoint>", "name or id; default: as the agent is now")
    .option("--egress <file>", "what may get out of them, as JSON (default: nothing); - is stdin")
    .option("--count <count>", "make so many, all of one cut: NAME-1, NAME-2, …", parseCount(1))
    .addHelpText(
      "after",
      "\nExamples:\n  perdure fork builder builder-try --checkpoint before-upgrade\n  perdure fork builder try --count 8",
    );
  type Options = SharedOptions & {
    readonly checkpoint?: string;
    readonly egress?: string;
    readonly count?: number;
  };
  addSharedOptions(command).action(async (agent: string, name: string, options: Options) => {
    const { checkpoint, egress, count } = options;
    const from = {
      ...(checkpoint === undefined ? {} : { checkpoint }),
      ...(egress === undefined ? {} : { egress: await readPolicy(egress) }),
    };
    await carryOut(options, `Forking agent "${agent}"`, async ({ perdure }) => {
      if (count === undefined) return letOutOf(await perdure.fork(agent, name, from));
      const names = Array.from({ length: count }, (_, i) => `${name}-${i + 1}`);
      const value = await perdure.forkAll(agent, names, from);
      return { value, text: value.map((made) => letOutOf(made).text).join("") };
    });
  });
}

function addHotCommand(program: Command): void {
  const command = program
    .command("hot")
    .description(
      "keep machines ready that hold a checkpoint: its next forks or restores are quicker",
    )
    .argument("<agent>", "name or id")
    .argument("<count>", "how many; 0 lets them go", parseCount(0))
    .option("--checkpoint <checkpoint>", "name or id; default: the newest")
    .addOption(
      new Option("--use <use>", "what takes them (default: fork)").choices(["fork", "restore"]),
    )
    .addHelpText("after", "\nExample:\n  perdure hot builder 2 --checkpoint root");
  type Options = SharedOptions & {
    readonly checkpoint?: string;
    readonly use?: "fork" | "restore";
  };
  addSharedOptions(command).action(async (agent: string, count: number, options: Options) => {
    const { checkpoint, use } = options;
    await carryOut(options, `Preparing hot children of agent "${agent}"`, async ({ perdure }) => {
      const value = await perdure.hot(agent, {
        count,
        ...(checkpoint === undefined ? {} : { checkpoint }),
        ...(use === undefined ? {} : { use }),
      });
      const text = `Hot children of ${value.checkpoint} for ${value.use}: ${value.ready}\n`;
      return { value, text };
    });
  });
}

function addRestoreCommand(program: Command): void {
  const command = program
    .command("restore")
    .description("go back to a checkpoint that is kept; what the agent is now is kept, too")
    .argument("<agent>", "name or id")
    .argument("<checkpoint>", 'name or id, as "perdure checkpoints" lists them')
    .addHelpText("after", "\nExample:\n  perdure restore builder before-upgrade");
  addSharedOptions(command).action(
    async (agent: string, checkpoint: string, options: SharedOptions) => {
      await carryOut(options, `Restoring agent "${agent}"`, async ({ perdure }) =>
        letOutOf(await perdure.restore(agent, checkpoint)),
      );
    },
  );
}

function addDropCommand(program: Command): void {
  const command = program
    .command("drop")
    .description("forget a kept checkpoint; there is no way back to it")
    .argument("<agent>", "name or id")
    .argument("<checkpoint>", 'name or id, as "perdure checkpoints" lists them')
    .addHelpText("after", "\nExample:\n  perdure drop builder before-upgrade");
  addSharedOptions(command).action(
    async (agent: string, checkpoint: string, options: SharedOptions) => {
      await carryOut(options, `Dropping checkpoint "${checkpoint}"`, async ({ perdure }) => {
        const value = await perdure.drop(agent, checkpoint);
        const text = `Checkpoint "${checkpoint}" of agent "${value.name}" is no longer kept\n`;
        return { value, text };
      });
    },
  );
}

function addRecoverCommand(program: Command): void {
  const command = program
    .command("recover")
    .description("bring a failed agent back; the cut that is not taken is kept")
    .argument("<agent>", "name or id")
    .addOption(
      new Option("--from <cut>", "default: as the agent's on-crash setting says").choices([
        "checkpoint",
        "disk",
      ]),
    )
    .addHelpText("after", "\nExample:\n  perdure recover builder --from disk");
  type Options = SharedOptions & { readonly from?: "checkpoint" | "disk" };
  addSharedOptions(command).action(async (agent: string, options: Options) => {
    const { from } = options;
    await carryOut(options, `Recovering agent "${agent}"`, async ({ perdure }) =>
      letOutOf(await perdure.recover(agent, from === undefined ? {} : { from })),
    );
  });
}

function addCheckpointCommand(program: Command): void {
  const command = program
    .command("checkpoint")
    .description("take a checkpoint of the agent, which goes on")
    .argument("<agent>", "name or id")
    .option("--name <name>", "keep the checkpoint under this name")
    .addHelpText("after", "\nExample:\n  perdure checkpoint builder --name before-upgrade");
  type Options = SharedOptions & { readonly name?: string };
  addSharedOptions(command).action(async (agent: string, options: Options) => {
    const { name } = options;
    await carryOut(options, `Taking a checkpoint of agent "${agent}"`, async ({ perdure }) => {
      const value = await perdure.checkpoint(agent, name === undefined ? {} : { name });
      const { id, addedBytes, pauseMs } = value;
      const paused = pauseMs === null ? "" : `, paused for ${formatDuration(pauseMs)}`;
      return { value, text: `Checkpoint ${id}: ${formatSize(addedBytes)} added${paused}\n` };
    });
  });
}

export function stateOf(agent: AgentView): { value: AgentView; text: string } {
  const stored = agent.state === "removed" ? "" : `: ${formatSize(agent.storedBytes)} stored`;
  return { value: agent, text: `Agent "${agent.name}" is ${agent.state}${stored}\n` };
}

/** Where the agent was awake, its report is of the time before, and says nothing of this call. */
async function letOutOnce({ perdure }: Session, agent: string, verb: "wake" | "start") {
  const before = await perdure.show(agent);
  const result = await perdure[verb](agent);
  const { state, name, generation } = result.agent;
  if (before.state !== "awake" || before.generation !== generation) return letOutOf(result);
  const text = `Agent "${name}" is ${state}, and was before: generation ${generation}\n`;
  return { value: result, text };
}

function letOutOf(result: LetOut): { value: LetOut; text: string } {
  const { agent, report } = result;
  const facts = [`generation ${agent.generation}`];
  if (report !== null) {
    facts.push(report.verdict);
    if (report.route === "recover") {
      facts.push(`recovered from ${report.cut.memory ? "its last checkpoint" : "its newest disk"}`);
    }
    if (report.otherCut !== null) {
      const what = report.route === "restore" ? "what it was before" : "the other cut";
      facts.push(`${what} is kept as "${report.otherCut.keptAs}"`);
    }
    if (report.letOutAtMs !== null) {
      facts.push(`let out in ${formatDuration(report.letOutAtMs - report.startedAtMs)}`);
    }
  }
  return { value: result, text: `Agent "${agent.name}" is ${agent.state}: ${facts.join(", ")}\n` };
}
