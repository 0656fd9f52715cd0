/** `key`: who may reach the daemon over TCP, and what for. */
import { InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import { durationMs } from "@perdure/sdk";
import type { KeyScope, KeyView } from "@perdure/sdk";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { table } from "../table.ts";

export function addKeyCommands(program: Command): void {
  const key = program
    .command("key")
    .description("make, list and revoke API keys for callers over TCP")
    .addHelpText(
      "after",
      "\nA daemon listens on TCP where it was started with --listen; over its socket no key is asked for.\n\n" +
        "Example:\n  perdure key create console --scope read",
    );
  addSharedOptions(key);
  addCreate(key);
  addList(key);
  addRevoke(key);
}

interface CreateOptions extends SharedOptions {
  readonly scope: KeyScope;
  readonly agent?: string[];
  readonly expires?: number;
  readonly e2b?: boolean;
}

function addCreate(key: Command): void {
  const command = key
    .command("create")
    .description("make an API key; its token is shown this once, on stdout")
    .argument("<name>", "what it is listed as")
    .addOption(
      new Option(
        "--scope <scope>",
        "read: to look; use: exec, files, sleep and wake, too; admin: everything",
      )
        .choices(["read", "use", "admin"])
        .makeOptionMandatory(),
    )
    .option("--agent <agent...>", "the only agents that it reaches, by name or id; default: all")
    .option("--e2b", "print it in the form that clients of E2B take: for E2B_API_KEY")
    .option("--expires <time>", "after this long, as in 12h or 30d; default: never", expiryFrom)
    .addHelpText(
      "after",
      "\nExample:\n  perdure key create ci --scope use --agent builder --expires 30d",
    );
  addSharedOptions(command).action(async (name: string, _: unknown, called: Command) => {
    const options = called.optsWithGlobals<CreateOptions>();
    const { scope, agent: agents = null, expires: expiresAtMs = null, e2b = false } = options;
    await withSession(options, async ({ perdure, print }) => {
      const created = await perdure.keys.create({ name, scope, agents, expiresAtMs });
      print(created, `${e2b ? created.e2bKey : created.token}\n`);
      return 0;
    });
  });
}

function addList(key: Command): void {
  const command = key
    .command("list")
    .description("list the API keys by name")
    .addHelpText("after", "\nExample:\n  perdure key list --json");
  addSharedOptions(command).action(async (_: unknown, called: Command) => {
    await withSession(called.optsWithGlobals<SharedOptions>(), async ({ perdure, print }) => {
      const keys: KeyView[] = [];
      for await (const view of perdure.keys.list()) keys.push(view);
      const heading = ["NAME", "ID", "SCOPE", "AGENTS", "CREATED", "EXPIRES", "LAST USED"];
      print(keys, table([heading, ...keys.map(row)]));
      return 0;
    });
  });
}

function addRevoke(key: Command): void {
  const command = key
    .command("revoke")
    .description("end an API key at once; connections that were opened with it are cut")
    .argument("<key>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure key revoke console");
  addSharedOptions(command).action(async (ref: string, _: unknown, called: Command) => {
    await withSession(called.optsWithGlobals<SharedOptions>(), async ({ perdure, print }) => {
      const view = await perdure.keys.revoke(ref);
      print(view, `Key "${view.name}" is revoked\n`);
      return 0;
    });
  });
}

function row({ name, id, scope, agents, createdAtMs, expiresAtMs, lastUsedAtMs }: KeyView) {
  const time = (ms: number | null): string => (ms === null ? "never" : new Date(ms).toISOString());
  const reach = agents === null ? "all" : agents.join(",");
  return [name, id, scope, reach, time(createdAtMs), time(expiresAtMs), time(lastUsedAtMs)];
}

function expiryFrom(text: string): number {
  const ms = durationMs(text);
  if (ms !== null && ms > 0) return Date.now() + ms;
  throw new InvalidArgumentError("It must be a time as in 12h or 30d.");
}
