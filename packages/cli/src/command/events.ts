/** `events`: what became of agents, and what becomes of them. */
import { InvalidArgumentError } from "commander";
import type { Command } from "commander";
import type { AgentEvent, EventGap, EventKind } from "@perdure/sdk";
import { eventKinds } from "@perdure/sdk";
import { given } from "../given.ts";
import { quoted } from "../quoted.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

interface Options extends SharedOptions {
  readonly agent?: string;
  readonly kind?: EventKind[];
  readonly after?: number;
  readonly follow?: boolean;
}

export function addEventsCommand(program: Command): void {
  const command = program
    .command("events")
    .description("print what became of agents, oldest first")
    .option("--agent <agent>", "name or id, also of one that was removed")
    .option("--kind <kinds>", `with commas between: ${eventKinds.join(", ")}`, kindsFrom)
    .option("--after <id>", "only what is newer than this event", idFrom)
    .option(
      "--follow",
      "print what happens from now on (or after --after), until it is interrupted",
    )
    .addHelpText(
      "after",
      "\nWith --json each event is one line.\n\nExamples:\n  perdure events --agent builder\n" +
        "  perdure events --follow --kind state,failed",
    );
  addSharedOptions(command).action(async (options: Options) => {
    const { agent, kind: kinds, after, follow = false } = options;
    await withSession(options, async ({ perdure, json }) => {
      for await (const event of perdure.events(given({ agent, kinds, after, follow }))) {
        process.stdout.write(json ? `${JSON.stringify(event)}\n` : inWords(event));
      }
      return 0;
    });
  });
}

function inWords(event: AgentEvent | EventGap): string {
  if (event.kind === "gap") return `(events ${event.from} to ${event.to} are not kept any more)\n`;
  const { id, atMs, name, generation, kind, data } = event;
  const facts = Object.entries(data)
    .filter(([, value]) => value !== null)
    .map(([key, value]) => `${key}=${typeof value === "string" ? quoted(value) : value}`);
  const columns = [id, new Date(atMs).toISOString(), name, `g${generation}`, kind, ...facts];
  return `${columns.join("  ")}\n`;
}

function kindsFrom(text: string): EventKind[] {
  const kinds = text.split(",");
  const wrong = kinds.find((kind) => !(eventKinds as readonly string[]).includes(kind));
  if (wrong === undefined) return kinds as EventKind[];
  throw new InvalidArgumentError(
    `There is no kind "${wrong}"; there are ${eventKinds.join(", ")}.`,
  );
}

function idFrom(text: string): number {
  if (/^[0-9]{1,15}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be the id of an event: a whole number.");
}
