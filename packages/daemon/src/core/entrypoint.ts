/**
 * Entrypoint: the program that an image names is started when its agent begins without a memory of having
 * started it: at create, and after every cold start (from the disk, whatever the route). It is a process
 * like any other that exec starts. Never started a second time in one generation: what the report says, or
 * a process that runs it, counts as started.
 *
 * A failure fails nothing: the agent is let out, and its report has a notice.
 */
import { PerdureError, type GateCheck, type WakeReport } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { imageConfigOf, programOf, withDefaults } from "./exec-default.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import { verdictOf } from "./wake-gate.ts";

const check = "entrypoint";

type Begun = Pick<WakeReport, "route" | "cut">;

/** Whether nothing of what ran before, if anything did, is in this generation's memory. */
function beginsAnew({ route, cut }: Begun): boolean {
  return route === "create" || !cut.memory;
}

/** Starts the image's program where that is due. Right after the let-out; holds the lane. */
export async function startEntrypoint(
  actor: Actor,
  link: GuestLink,
  begun: Begun,
): Promise<readonly GateCheck[]> {
  if (actor.agent.start === false || !beginsAnew(begun)) return [];
  try {
    const config = await imageConfigOf(actor);
    if (config?.start !== true || programOf(config).length === 0) return [];
    const request = withDefaults(actor.agent, { env: {}, stdin: false }, config);
    const { process } = await link.exec(request);
    const detail = `The image's program was started as process ${process}.`;
    return [{ check, outcome: "passed", detail }];
  } catch (error) {
    const { code, message } = PerdureError.from(error);
    actor.parts.log("warn", "The image's program could not be started", { agent: actor.id, code });
    const detail = `The image's program could not be started: ${message}`;
    return [{ check, outcome: "notice", detail }];
  }
}

/**
 * For an agent that was taken over while its daemon may have died between let-out and start: does what was
 * not done. Holds the lane.
 */
export async function completeEntrypoint(actor: Actor, link: GuestLink): Promise<void> {
  const { report, generation } = actor.agent;
  if (report?.generation !== generation || report.checks.some((each) => each.check === check)) {
    return;
  }
  if (!beginsAnew(report) || actor.agent.start === false) return;
  const program = programOf(await imageConfigOf(actor));
  if (program.length === 0) return;
  const running = (await link.processes()).find(({ argv }) => isSame(argv, program));
  const checks: readonly GateCheck[] =
    running === undefined
      ? await startEntrypoint(actor, link, report)
      : [
          {
            check,
            outcome: "passed",
            detail: `The image's program is process ${running.process}.`,
          },
        ];
  if (checks.length > 0) await actor.save({ report: withChecks(report, checks) });
}

function isSame(one: readonly string[], two: readonly string[]): boolean {
  return one.length === two.length && one.every((word, index) => word === two[index]);
}

/** The report with what was found after it was made. */
export function withChecks(report: WakeReport, more: readonly GateCheck[]): WakeReport {
  const checks = [...report.checks, ...more];
  return { ...report, checks, verdict: verdictOf(checks) };
}
