/**
 * Crash points: how the crash suite ends the daemon, the VMM or both at a named durable step. Set by
 * `PERDURE_CRASH=<step>:<daemon|vmm|both>`; without it a step does nothing.
 */
import { PerdureError } from "@perdure/protocol";
import { isStep, type StepHook } from "./core/step.ts";

export function crashPointFrom(environment: NodeJS.ProcessEnv): StepHook {
  const setting = environment["PERDURE_CRASH"];
  if (setting === undefined || setting === "") return () => Promise.resolve();
  const [wanted = "", target = ""] = setting.split(":");
  if (!isStep(wanted) || !["daemon", "vmm", "both"].includes(target)) {
    throw new PerdureError("bad_request", `PERDURE_CRASH: "${setting}" names no step and target`);
  }
  return (step, { machinePid }) => {
    if (step === wanted) {
      if (target !== "daemon" && machinePid !== null) process.kill(machinePid, "SIGKILL");
      if (target !== "vmm") process.kill(process.pid, "SIGKILL");
    }
    return Promise.resolve();
  };
}
