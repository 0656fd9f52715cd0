import type { Command } from "commander";
import type { AgentView, CheckpointView, ProcessView } from "@perdure/sdk";
import { formatDuration, formatSize } from "../quantity.ts";
import { quoted } from "../quoted.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs, table } from "../table.ts";

/** `show`, `checkpoints` and `processes`: what is known of one agent. */
export function addShowCommands(program: Command): void {
  const show = program
    .command("show")
    .description("show one agent")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure show builder");
  addSharedOptions(show).action(async (agent: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const view = await perdure.show(agent);
      print(view, describe(view));
      return 0;
    });
  });

  const checkpoints = program
    .command("checkpoints")
    .description("list an agent's checkpoints, oldest first")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure checkpoints builder");
  addSharedOptions(checkpoints).action(async (agent: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const views = await perdure.checkpoints(agent);
      const heading = ["ID", "KIND", "NAME", "GENERATION", "TAKEN", "MEMORY", "DISK", "ADDED"];
      print(views, table([heading, ...views.map(checkpointRow)]));
      return 0;
    });
  });

  const processes = program
    .command("processes")
    .description("list the programs that exec started in an agent")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure processes builder");
  addSharedOptions(processes).action(async (agent: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const views = await perdure.processes(agent);
      print(
        views,
        table([["PROCESS", "PID", "USER", "STATE", "PROGRAM"], ...views.map(processRow)]),
      );
      return 0;
    });
  });
}

function publicOf({ portsPublic, publicPorts }: AgentView): (readonly [string, string])[] {
  if (portsPublic) return [["public", "every port that was not made private"]];
  return publicPorts.length === 0 ? [] : [["public", `port ${publicPorts.join(", ")}`]];
}

function endOf({ end }: AgentView): (readonly [string, string])[] {
  if (end === null) return [];
  const at = end.atMs === null ? "once it is awake" : new Date(end.atMs).toISOString();
  return [["end", `${at}: ${end.then}`]];
}

function describe(agent: AgentView): string {
  const { shape, pending, failure } = agent;
  const comes = (what: string | undefined): string =>
    what === undefined ? "" : ` (pending: ${what})`;
  const size = (bytes: number | undefined): string | undefined =>
    bytes === undefined ? undefined : formatSize(bytes);
  const time = (ms: number): string => new Date(ms).toISOString();
  return pairs([
    ["name", agent.name],
    ["id", agent.id],
    ["state", agent.paused === null ? agent.state : `${agent.state}, paused: ${agent.paused}`],
    ["generation", String(agent.generation)],
    ["image", `${agent.image.name} (${agent.image.id.slice(0, 12)})`],
    ["memory", `${formatSize(shape.memoryBytes)}${comes(size(pending?.memoryBytes))}`],
    ["cpus", `${shape.cpus}${comes(pending?.cpus?.toString())}`],
    ["disk", `${formatSize(shape.diskBytes)}${comes(size(pending?.diskBytes))}`],
    ["on crash", agent.onCrash],
    ["idle after", timeOrNever(agent.idleAfterMs)],
    ["checkpoint every", timeOrNever(agent.checkpointEveryMs)],
    ...agent.holds.map(
      ({ id, reason, untilMs }) =>
        [`hold ${id}`, `until ${time(untilMs)}${reason === "" ? "" : `: ${reason}`}`] as const,
    ),
    ...publicOf(agent),
    ["egress", egressOf(agent)],
    ...(agent.wakeAtMs === null ? [] : [["wakes at", time(agent.wakeAtMs)] as const]),
    ...endOf(agent),
    ...Object.entries(agent.labels).map(
      ([key, value]) => [`label ${quoted(key)}`, quoted(value)] as const,
    ),
    ...(agent.waitDueMs === null ? [] : [["wait due", time(agent.waitDueMs)] as const]),
    ["head", agent.head ?? "none"],
    ["stored", formatSize(agent.storedBytes)],
    ...(failure === null
      ? []
      : ([
          ["failure", `${failure.reason}: ${failure.message}`],
          ["way back", failure.wayBack],
        ] as const)),
    ["created", time(agent.createdAtMs)],
    ["changed", time(agent.changedAtMs)],
  ]);
}

function egressOf({ egress: { rules, otherwise } }: AgentView): string {
  if (rules === 0) return otherwise === "deny" ? "closed" : "open";
  return `${rules === 1 ? "1 rule" : `${rules} rules`}, otherwise ${otherwise}`;
}

function timeOrNever(ms: number | null): string {
  return ms === null ? "never" : formatDuration(ms);
}

function checkpointRow(view: CheckpointView): string[] {
  return [
    view.id,
    kindOf(view),
    view.name ?? "-",
    String(view.generation),
    new Date(view.createdAtMs).toISOString(),
    view.memory ? "yes" : "no",
    view.disk,
    formatSize(view.addedBytes),
  ];
}

/** A checkpoint of an agent that went on is `named` in its manifest, with or without a name. */
function kindOf({ kind, name }: CheckpointView): string {
  return kind === "named" && name === null ? "live" : kind;
}

function processRow({
  process,
  pid,
  user,
  running,
  exit,
  argv,
  startedAtMs,
}: ProcessView): string[] {
  const ended = exit?.signal == null ? `exit ${exit?.exitCode ?? "?"}` : `signal ${exit.signal}`;
  const since = formatDuration(Math.max(0, Date.now() - startedAtMs));
  const state = running ? `running ${since}` : ended;
  return [String(process), String(pid), user, state, oneLine(argv)];
}

/** Words of a guest's making in one line. */
function oneLine(argv: readonly string[]): string {
  const line = argv.join(" ").slice(0, 120);
  return /[^\x20-\x7e]/.test(line) ? quoted(line) : line;
}
