import type { Command } from "commander";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

/** Exit code 1 where the host is not ready. */
export function addDoctorCommand(program: Command): void {
  const command = program
    .command("doctor")
    .description("say what this host can and cannot do, and what to do about it")
    .addHelpText("after", "\nExample:\n  perdure doctor --json");
  addSharedOptions(command).action(async (options: SharedOptions) => {
    await withSession(options, async ({ perdure, during, print }) => {
      const report = await during("Examining the host", perdure.doctor());
      const lines = report.findings.flatMap(({ subject, verdict, detail, advice }) => [
        `${verdict.padEnd(7)}  ${subject}: ${detail}\n`,
        ...(advice === null ? [] : [`         ${advice}\n`]),
      ]);
      const summary = report.ready ? "This host is ready.\n" : "This host is not ready.\n";
      print(report, [...lines, summary].join(""));
      return report.ready ? 0 : 1;
    });
  });
}
