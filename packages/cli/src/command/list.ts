import { Option } from "commander";
import type { Command } from "commander";
import type { AgentState, AgentView } from "@perdure/sdk";
import { takePair } from "../owner-option.ts";
import { formatDuration, formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { table } from "../table.ts";

interface ListOptions extends SharedOptions {
  readonly prefix?: string;
  readonly state?: AgentState;
  readonly label?: Readonly<Record<string, string>>;
}

const states: readonly AgentState[] = [
  "creating",
  "awake",
  "falling-asleep",
  "asleep",
  "waking",
  "stopping",
  "stopped",
  "quarantined",
  "failed",
];

export function addListCommand(program: Command): void {
  const command = program
    .command("list")
    .description("list agents by name")
    .option("--prefix <text>", "only names that begin so")
    .addOption(new Option("--state <state>", "only agents in this state").choices(states))
    .option("--label <key=value...>", "only agents that have all of these labels", takePair)
    .addHelpText("after", "\nExample:\n  perdure list --state asleep --json");
  addSharedOptions(command).action(async (options: ListOptions) => {
    const { prefix, state, label: labels } = options;
    await withSession(options, async ({ perdure, print }) => {
      const agents: AgentView[] = [];
      const query = {
        ...(prefix === undefined ? {} : { prefix }),
        ...(state === undefined ? {} : { state }),
        ...(labels === undefined ? {} : { labels }),
      };
      for await (const agent of perdure.list(query)) agents.push(agent);
      print(agents, table([heading, ...agents.map(row)]));
      return 0;
    });
  });
}

const heading = ["NAME", "STATE", "GENERATION", "MEMORY", "CPUS", "DISK", "STORED", "AGE"];

function row(agent: AgentView): string[] {
  const { memoryBytes, cpus, diskBytes } = agent.shape;
  return [
    agent.name,
    agent.paused === null ? agent.state : `${agent.state} (paused)`,
    String(agent.generation),
    formatSize(memoryBytes),
    String(cpus),
    formatSize(diskBytes),
    formatSize(agent.storedBytes),
    formatDuration(Math.max(0, Date.now() - agent.createdAtMs)),
  ];
}
