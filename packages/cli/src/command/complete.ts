/**
 * `complete`: shell completion. `perdure complete bash|zsh|fish|powershell` prints a script; the script asks
 * `perdure complete -- WORDS` what may follow. Names of agents are asked of a daemon that answers at once; none is
 * started for it.
 */
import tab from "@bomb.sh/tab/commander";
import type { Command } from "commander";
import { openClient } from "../session.ts";

const NAMES_WITHIN_MS = 500;
const NAMES_MAX = 1000;

/** Adds the command; call it last, when all others are there. */
export function addCompleteCommand(program: Command): void {
  let names: readonly string[] = [];
  const completion = tab(program);
  for (const command of completion.commands.values()) {
    const agent = command.arguments.get("agent");
    if (agent !== undefined) agent.handler = (add) => names.forEach((name) => add(name, "agent"));
  }
  program.hook("preAction", async (_, called) => {
    if (called.name() === "complete" && called.args.length > 1) names = await agentNames();
  });
  const command = program.commands.find((one) => one.name() === "complete");
  command?.addHelpText(
    "after",
    "\nExamples:\n  perdure complete bash > /etc/bash_completion.d/perdure\n  source <(perdure complete zsh)",
  );
}

async function agentNames(): Promise<string[]> {
  await using perdure = openClient({});
  try {
    const signal = AbortSignal.timeout(NAMES_WITHIN_MS);
    const { agents } = await perdure.listPage({ limit: NAMES_MAX, signal });
    return agents.map(({ name }) => name);
  } catch {
    // Without a daemon there is nothing to offer.
    return [];
  }
}
