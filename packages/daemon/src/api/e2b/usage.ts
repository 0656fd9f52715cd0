/** What a sandbox uses, over a short while: CPU time is a sum, and how much of a CPU that is takes two looks. */
import type { AgentView } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";
import type { Clock } from "../../core/ports/clock.ts";
import { metricOf } from "./sandbox-view.ts";

/** Between the two looks. */
const LOOK_MS = 200;

/** @throws `agent_state` where it does not run: it is not woken for that */
export async function measure(
  commands: Pick<Commands, "usage">,
  clock: Clock,
  view: AgentView,
  signal: AbortSignal,
) {
  const target: Target = { tenant: view.tenant, agent: view.id };
  const first = await commands.usage(target);
  const beganMs = clock.monotonicMs();
  await clock.wait(LOOK_MS, signal);
  const second = await commands.usage(target);
  const tookMs = Math.max(1, clock.monotonicMs() - beganMs);
  const usedMs = Math.max(0, second.cpuUsec - first.cpuUsec) / 1000;
  const ofAllMs = tookMs * view.shape.cpus;
  const percent = Math.min(100, Math.round((usedMs / ofAllMs) * 10_000) / 100);
  return metricOf(view, second, percent, clock.nowMs());
}
