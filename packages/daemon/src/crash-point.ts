/**
 * Crash points: how the crash suites end the daemon, the VMM or both at a named durable step, or halt the
 * daemon there, once, so that a test can change the world under it. Set by
 * `PERDURE_CRASH=<step>:<daemon|vmm|both|halt>`; without it a step does nothing.
 */
import { PerdureError } from "@perdure/protocol";
import { isStep, type StepHook } from "./core/step.ts";

const targets = ["daemon", "vmm", "both", "halt"];

export function crashPointFrom(environment: NodeJS.ProcessEnv): StepHook {
  const setting = environment["PERDURE_CRASH"];
  if (setting === undefined || setting === "") return () => Promise.resolve();
  const [wanted = "", target = ""] = setting.split(":");
  if (!isStep(wanted) || !targets.includes(target)) {
    throw new PerdureError("bad_request", `PERDURE_CRASH: "${setting}" names no step and target`);
  }
  let halted = false;
  return (step, { machinePid }) => {
    if (step !== wanted) return Promise.resolve();
    if (target === "halt") {
      // Every thread stands still when this returns, until SIGCONT.
      if (!halted) process.kill(process.pid, "SIGSTOP");
      halted = true;
      return Promise.resolve();
    }
    if (target !== "daemon" && machinePid !== null) process.kill(machinePid, "SIGKILL");
    if (target !== "vmm") process.kill(process.pid, "SIGKILL");
    return Promise.resolve();
  };
}
