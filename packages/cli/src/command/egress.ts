/** `egress`: which connections to elsewhere an agent may make, and which it made. */
import { Argument, InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import type { ConnectionView, EgressRule, EgressView, Perdure } from "@perdure/sdk";
import { parseTarget, readPolicy, ruleText } from "../egress-rule.ts";
import { formatDuration, formatSize } from "../quantity.ts";
import { quoted } from "../quoted.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs, table } from "../table.ts";
import { carryOut } from "./verb.ts";

const actions = ["allow", "deny", "remove", "otherwise", "open", "close", "connections"] as const;
type Action = (typeof actions)[number];

interface EgressOptions extends SharedOptions {
  readonly method?: string[];
  readonly private?: boolean;
  readonly file?: string;
}

export function addEgressCommand(program: Command): void {
  const command = program
    .command("egress")
    .description("say which connections to elsewhere an agent may make, and show those it made")
    .argument("<agent>", "name or id")
    .addArgument(new Argument("[action]", "what to do; default: show").choices(actions))
    .argument("[targets...]", "of allow and deny: HOST[:PORT]; of remove: numbers of rules")
    .option("--method <method...>", "only HTTP requests in the clear with these methods")
    .option("--private", "also where the name leads to an address of this host or its network")
    .addOption(new Option("--file <path>", "take the whole policy from a file; - is stdin"))
    .addHelpText(
      "after",
      `
Nothing gets out of an agent that nothing was said of. The first rule that speaks of a connection decides, and a new
rule goes before the others. A change holds at once, for open connections as well. HOST is a name, "*.NAME" for all
below it, an address, a network as in 10.0.0.0/8, or "*".

  allow HOST…, deny HOST…   add rules        remove NUMBER…   take rules away
  otherwise allow|deny      for what no rule speaks of
  open, close               no rules; everything public, or nothing, gets out
  connections               list the connections of the agent, oldest first

Examples:
  perdure egress builder
  perdure egress builder allow pypi.org:443 '*.pythonhosted.org:443'
  perdure egress builder allow host.perdure.internal:5432 --private
  perdure egress builder connections --json`,
    );
  addSharedOptions(command).action(
    async (
      agent: string,
      action: Action | undefined,
      targets: readonly string[],
      options: EgressOptions,
    ) => {
      if (action === "connections") return listConnections(agent, options);
      const doing = `Setting what gets out of agent "${agent}"`;
      try {
        assertFits(action, targets, options);
        await carryOut(options, doing, async ({ perdure }) => {
          const value = await changed(perdure, agent, action, targets, options);
          return { value, text: egressText(value) };
        });
      } catch (error) {
        if (error instanceof InvalidArgumentError) command.error(`error: ${error.message}`);
        throw error;
      }
    },
  );
}

function assertFits(
  action: Action | undefined,
  targets: readonly string[],
  { file, method, private: isPrivate }: EgressOptions,
): void {
  const takesTargets = action === "allow" || action === "deny" || action === "remove";
  if (action !== undefined && file !== undefined) {
    throw new InvalidArgumentError(`--file is the whole policy: it does not go with ${action}.`);
  }
  if (takesTargets && targets.length === 0) {
    throw new InvalidArgumentError(`"${action}" needs at least one target.`);
  }
  if (action === "otherwise" && (targets.length !== 1 || !/^(allow|deny)$/.test(targets[0] ?? "")))
    throw new InvalidArgumentError('"otherwise" is followed by allow or deny.');
  if (!takesTargets && action !== "otherwise" && targets.length > 0) {
    throw new InvalidArgumentError(`"${String(action)}" takes no targets.`);
  }
  if (action !== "allow" && isPrivate === true) {
    throw new InvalidArgumentError("--private is for allow.");
  }
  if (action !== "allow" && action !== "deny" && method !== undefined) {
    throw new InvalidArgumentError("--method is for allow and deny.");
  }
}

async function changed(
  perdure: Perdure,
  agent: string,
  action: Action | undefined,
  targets: readonly string[],
  options: EgressOptions,
): Promise<EgressView> {
  if (options.file !== undefined) {
    return perdure.setEgress(agent, await readPolicy(options.file));
  }
  if (action === undefined) return perdure.egress(agent);
  if (action === "open") return perdure.setEgress(agent, { rules: [], otherwise: "allow" });
  if (action === "close") return perdure.setEgress(agent, { rules: [], otherwise: "deny" });
  const { rules, otherwise } = await perdure.egress(agent);
  switch (action) {
    case "allow":
    case "deny": {
      const added = targets.map((target) => ruleOf(action, target, options));
      const texts = new Set(added.map(ruleText));
      const others = rules.filter((rule) => !texts.has(ruleText(rule)));
      return perdure.setEgress(agent, { rules: [...added, ...others], otherwise });
    }
    case "remove": {
      const gone = new Set(targets.map((target) => numberOf(target, rules.length)));
      const left = rules.filter((_, at) => !gone.has(at + 1));
      return perdure.setEgress(agent, { rules: left, otherwise });
    }
    case "otherwise":
      return perdure.setEgress(agent, {
        rules,
        otherwise: targets[0] === "allow" ? "allow" : "deny",
      });
    case "connections":
      return perdure.egress(agent);
  }
}

function ruleOf(
  action: "allow" | "deny",
  target: string,
  { method, private: isPrivate }: EgressOptions,
): EgressRule {
  return {
    action,
    ...parseTarget(target),
    ...(method === undefined ? {} : { methods: method.map((each) => each.toUpperCase()) }),
    ...(isPrivate === true ? { private: true } : {}),
  };
}

function numberOf(text: string, count: number): number {
  const number = Number(text);
  if (Number.isInteger(number) && number >= 1 && number <= count) return number;
  throw new InvalidArgumentError(`There is no rule ${text}.`);
}

function egressText({ rules, otherwise, wayOut, connections }: EgressView): string {
  const now = connections === 1 ? "1 connection" : `${connections} connections`;
  const state =
    wayOut === "open"
      ? `open, ${now} now`
      : wayOut === "none"
        ? "none: its guest agent is older; stop and start give it one"
        : "not awake";
  return pairs([
    ["way out", state],
    ...rules.map((rule, at) => [`rule ${at + 1}`, ruleText(rule)] as const),
    ["otherwise", otherwise],
  ]);
}

async function listConnections(agent: string, options: EgressOptions): Promise<void> {
  await withSession(options, async ({ perdure, print }) => {
    const found = await perdure.connections(agent);
    const heading = ["AT", "TO", "ADDRESS", "OUTCOME", "RULE", "OUT", "IN", "TIME", "WHY"];
    print(found, table([heading, ...found.map(connectionRow)]));
    return 0;
  });
}

function connectionRow(view: ConnectionView): string[] {
  const { name, address, port, endedAtMs, atMs, rule, method } = view;
  const host = name ?? address ?? "?";
  return [
    new Date(atMs).toISOString(),
    `${method === null ? "" : `${method} `}${host.includes(":") ? `[${host}]` : host}:${port}`,
    address ?? "-",
    view.outcome,
    rule === null ? "-" : String(rule + 1),
    formatSize(view.outBytes),
    formatSize(view.inBytes),
    endedAtMs === null ? "-" : formatDuration(endedAtMs - atMs),
    view.why === null ? "" : quoted(view.why),
  ];
}
