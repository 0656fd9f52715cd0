/** `set`, `hold`, `why`, `quarantine` and `release`: when an agent rests, and why it does. */
import { Option } from "commander";
import type { Command } from "commander";
import type { AgentView, Why } from "@perdure/sdk";
import { addOwnerOptions, ownerSettings, type OwnerOptions } from "../owner-option.ts";
import {
  formatSize,
  orNull,
  parseCount,
  parseDuration,
  parseDurationOrNever,
  parseMomentOrNever,
  parseSize,
  type OrNever,
} from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs } from "../table.ts";
import { carryOut, stateOf } from "./verb.ts";

export function addRestCommands(program: Command): void {
  addSetCommand(program);
  addHoldCommand(program);
  addWhyCommand(program);
  addQuarantineCommands(program);
}

interface SetOptions extends SharedOptions, OwnerOptions {
  readonly memory?: number;
  readonly cpus?: number;
  readonly disk?: number;
  readonly onCrash?: "checkpoint" | "disk" | "ask";
  readonly idleAfter?: OrNever;
  readonly checkpointEvery?: OrNever;
  readonly wakeAt?: OrNever;
}

function addSetCommand(program: Command): void {
  const command = program
    .command("set")
    .description("change settings of an agent; what is left out stays as it is")
    .argument("<agent>", "name or id")
    .option(
      "--idle-after <time>",
      "put to sleep after so long idle, as in 10m; never",
      parseDurationOrNever,
    )
    .option(
      "--checkpoint-every <time>",
      "checkpoint so often while something changes; never",
      parseDurationOrNever,
    )
    .option(
      "--wake-at <moment>",
      "wake it then if it sleeps: 2030-01-31T08:00:00Z, +2h; never",
      parseMomentOrNever,
    )
    .option("--memory <size>", "memory from its next cold start on, as in 2G", parseSize)
    .option("--cpus <count>", "CPUs from its next cold start on", parseCount(1))
    .option("--disk <size>", "a larger disk, as in 16G; grows while it is awake", parseSize)
    .addOption(
      new Option("--on-crash <cut>", "what a crashed agent is recovered from").choices([
        "checkpoint",
        "disk",
        "ask",
      ]),
    )
    .addHelpText(
      "after",
      "\nExamples:\n  perdure set builder --idle-after 10m\n  perdure set builder --wake-at +2h\n  perdure set builder --disk 16G --memory 2G",
    );
  addOwnerOptions(command);
  addSharedOptions(command).action(async (agent: string, options: SetOptions) => {
    const { onCrash, idleAfter, checkpointEvery, wakeAt, memory, cpus, disk } = options;
    const settings = {
      ...(memory === undefined ? {} : { memoryBytes: memory }),
      ...(cpus === undefined ? {} : { cpus }),
      ...(disk === undefined ? {} : { diskBytes: disk }),
      ...(onCrash === undefined ? {} : { onCrash }),
      ...(idleAfter === undefined ? {} : { idleAfterMs: orNull(idleAfter) }),
      ...(checkpointEvery === undefined ? {} : { checkpointEveryMs: orNull(checkpointEvery) }),
      ...(wakeAt === undefined ? {} : { wakeAtMs: orNull(wakeAt) }),
      ...ownerSettings(command, options),
    };
    if (Object.keys(settings).length === 0) {
      command.error("error: give at least one setting to change");
    }
    await carryOut(options, `Changing agent "${agent}"`, async ({ perdure }) => {
      const value = await perdure.configure(agent, settings);
      return { value, text: `Agent "${value.name}" is changed${pendingWords(value)}\n` };
    });
  });
}

/** What of its size it does not have yet. */
function pendingWords({ pending }: AgentView): string {
  if (pending === null) return "";
  const { memoryBytes, cpus, diskBytes } = pending;
  const cold = [
    ...(memoryBytes === undefined ? [] : [`${formatSize(memoryBytes)} memory`]),
    ...(cpus === undefined ? [] : [`${cpus} CPU`]),
  ];
  return [
    ...(cold.length === 0 ? [] : [`; from its next cold start on ${cold.join(", ")}`]),
    ...(diskBytes === undefined ? [] : [`; ${formatSize(diskBytes)} disk when it wakes`]),
  ].join("");
}

function addHoldCommand(program: Command): void {
  const command = program
    .command("hold")
    .description("keep the agent awake though it is idle; wakes it where it is asleep")
    .argument("<agent>", "name or id")
    .option("--for <time>", "how long, 24h at most (default: 15m)", parseDuration)
    .option("--reason <text>", 'what "perdure why" says of it')
    .option("--end <hold>", "end the hold of this number instead", parseCount(1))
    .addHelpText(
      "after",
      "\nExamples:\n  perdure hold builder --for 2h --reason deploying\n  perdure hold builder --end 1",
    );
  type Options = SharedOptions & {
    readonly for?: number;
    readonly reason?: string;
    readonly end?: number;
  };
  addSharedOptions(command).action(async (agent: string, options: Options) => {
    const { for: forMs, reason, end } = options;
    await carryOut(options, `Holding agent "${agent}"`, async ({ perdure }) => {
      if (end !== undefined) {
        const value = await perdure.endHold(agent, end);
        return { value, text: `Hold ${end} of agent "${value.name}" has ended\n` };
      }
      const value = await perdure.hold(agent, {
        ...(forMs === undefined ? {} : { forMs }),
        ...(reason === undefined ? {} : { reason }),
      });
      const until = new Date(value.untilMs).toISOString();
      return { value, text: `Hold ${value.id}: agent "${agent}" stays awake until ${until}\n` };
    });
  });
}

function addWhyCommand(program: Command): void {
  const command = program
    .command("why")
    .description("say why the agent is awake or not, and what would change that")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure why builder");
  addSharedOptions(command).action(async (agent: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const why = await perdure.why(agent);
      print(why, describe(why));
      return 0;
    });
  });
}

function describe({ state, sinceMs, reasons, next, ways }: Why): string {
  const time = (ms: number): string => new Date(ms).toISOString();
  return pairs([
    ["state", `${state} since ${time(sinceMs)}`],
    ...reasons.map(({ detail, untilMs }) => {
      const until = untilMs === null ? "" : ` (until ${time(untilMs)})`;
      return ["because", `${detail}${until}`] as const;
    }),
    ["next", next === null ? "nothing by itself" : `${next.what} at ${time(next.atMs)}`],
    ...ways.map((way) => ["to change it", way] as const),
  ]);
}

function addQuarantineCommands(program: Command): void {
  const quarantine = program
    .command("quarantine")
    .description(
      "put the agent to sleep, or end it where it cannot be, and let nobody wake it before it is released",
    )
    .argument("<agent>", "name or id")
    .requiredOption("--reason <text>", 'what "perdure why" says of it')
    .addHelpText(
      "after",
      "\nIt can still be forked (also by hot children), to look into: a fork is another agent, and runs." +
        '\n\nExample:\n  perdure quarantine builder --reason "looks taken over"',
    );
  type Options = SharedOptions & { readonly reason: string };
  addSharedOptions(quarantine).action(async (agent: string, options: Options) => {
    await carryOut(options, `Quarantining agent "${agent}"`, async ({ perdure }) =>
      stateOf(await perdure.quarantine(agent, options.reason)),
    );
  });

  const release = program
    .command("release")
    .description("let a quarantined agent go on as it was; it is not woken yet")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure release builder");
  addSharedOptions(release).action(async (agent: string, options: SharedOptions) => {
    await carryOut(options, `Releasing agent "${agent}"`, async ({ perdure }) =>
      stateOf(await perdure.release(agent)),
    );
  });
}
