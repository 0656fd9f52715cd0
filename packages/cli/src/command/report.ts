import type { Command } from "commander";
import type { AgentView, WakeReport } from "@perdure/sdk";
import { formatDuration } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs, table } from "../table.ts";

export function addReportCommand(program: Command): void {
  const command = program
    .command("report")
    .description("show what the wake gate found when the agent was last let out")
    .argument("<agent>", "name or id")
    .addHelpText("after", "\nExample:\n  perdure report builder");
  addSharedOptions(command).action(async (agent: string, options: SharedOptions) => {
    await withSession(options, async ({ perdure, print }) => {
      const report = await perdure.report(agent);
      const view = await perdure.show(agent);
      const never = `Agent "${agent}" was never let out\n`;
      print(report, report === null ? never : describe(report) + since(view, report));
      return 0;
    });
  });
}

/** A wake that failed since then leaves this report where it was. */
function since({ name, state, failure, generation }: AgentView, report: WakeReport): string {
  if (state === "awake" && generation === report.generation) return "";
  const why = failure === null ? "" : ` (${failure.reason}: ${failure.message})`;
  return `\nThis is of the last time it was let out. Agent "${name}" is ${state} now${why}\n`;
}

function describe(report: WakeReport): string {
  const { clock, cut, otherCut } = report;
  const facts = pairs([
    ["verdict", report.verdict],
    ["route", report.route],
    ["generation", `${report.generation} (before: ${report.previousGeneration})`],
    ["away", formatDuration(report.awayMs)],
    ["cut", `${cut.checkpoint ?? "none"} (${cut.kind}, ${cut.memory ? "memory and " : ""}disk)`],
    ...(otherCut === null ? [] : ([["other cut", `kept as ${otherCut.keptAs}`]] as const)),
    [
      "clock",
      clock === null
        ? "not set"
        : `${clock.skewMs.toFixed(1)} ms off, known to ± ${clock.boundMs.toFixed(1)} ms`,
    ],
    ["entropy", `${report.entropyBytes} bytes`],
  ]);
  const checks = report.checks.map(({ check, outcome, detail }) => [check, outcome, detail]);
  const phases = Object.entries(report.phases).map(([name, ms]) => [name, formatDuration(ms)]);
  return [
    facts,
    table([["CHECK", "OUTCOME", "DETAIL"], ...checks]),
    table([["PHASE", "TOOK"], ...phases]),
  ].join("\n");
}
