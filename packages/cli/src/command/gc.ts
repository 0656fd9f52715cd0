/** `gc`: frees now what would be freed in the course of time. */
import type { Command } from "commander";
import { PerdureError } from "@perdure/sdk";
import type { ErrorBody, Freed, Perdure } from "@perdure/sdk";
import { formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

/** For `--json`. */
interface Result {
  readonly freedBytes: number;
  readonly agents: Freed[];
  readonly failed: { readonly agent: string; readonly error: ErrorBody }[];
}

export function addGcCommand(program: Command): void {
  const command = program
    .command("gc")
    .description("merge disk layers, remove what no kept checkpoint needs, and say what that freed")
    .argument("[agent]", "name or id; default: all agents, one after another")
    .addHelpText(
      "after",
      "\nA daemon does this by itself, a little later. Agents that rest stay at rest; a wake is not kept waiting." +
        "\n\nExample:\n  perdure gc builder",
    );
  addSharedOptions(command).action(async (agent: string | undefined, options: SharedOptions) => {
    await withSession(options, async ({ perdure, during, print }) => {
      if (agent !== undefined) {
        const freed = await during(`Collecting agent "${agent}"`, perdure.gc(agent));
        print({ freedBytes: freed.freedBytes, agents: [freed], failed: [] }, lineOf(freed));
        return 0;
      }
      const result = await during("Collecting all agents", collectAll(perdure));
      const { freedBytes, agents, failed } = result;
      const lines = [
        ...agents.map(lineOf),
        ...failed.map(({ agent: name, error }) => `Agent "${name}": ${error.message}\n`),
        `${formatSize(freedBytes)} freed in all\n`,
      ];
      print(result, lines.join(""));
      return failed.length > 0 ? 1 : 0;
    });
  });
}

/** One that fails keeps the others from nothing. */
async function collectAll(perdure: Perdure): Promise<Result> {
  const agents: Freed[] = [];
  const failed: Result["failed"] = [];
  for await (const { name } of perdure.list()) {
    try {
      agents.push(await perdure.gc(name));
    } catch (error) {
      const known = PerdureError.from(error);
      if (known.code === "daemon_unreachable") throw known;
      if (known.code !== "agent_not_found") failed.push({ agent: name, error: known.toJSON() });
    }
  }
  return { freedBytes: agents.reduce((sum, one) => sum + one.freedBytes, 0), agents, failed };
}

function lineOf({ name, freedBytes, storedBytes, layers, notice }: Freed): string {
  const merged =
    layers.after < layers.before
      ? `, disk layers merged from ${layers.before} to ${layers.after}`
      : "";
  const facts = `${formatSize(freedBytes)} freed, ${formatSize(storedBytes)} stored${merged}`;
  return `Agent "${name}": ${facts}${notice === null ? "" : `. ${notice}`}\n`;
}
