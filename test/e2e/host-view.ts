/** What the host itself says, whatever the product says: the judge of the end-to-end tests. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { PerdureError } from "@perdure/sdk";
import { until, type DaemonUnderTest } from "./daemon-under-test.ts";

/** VM processes that have a disk layer of this agent open. */
export function machinesOf(under: DaemonUnderTest, agentId: string): number[] {
  return under.vmPids().filter((pid) => {
    try {
      return readdirSync(`/proc/${pid}/fd`).some((fd) =>
        readlinkSync(`/proc/${pid}/fd/${fd}`).startsWith(`${under.home}/agents/${agentId}/`),
      );
    } catch {
      return false;
    }
  });
}

/** The one VM process of this agent. */
export function machineOf(under: DaemonUnderTest, agentId: string): number {
  const [pid, ...more] = machinesOf(under, agentId);
  if (pid === undefined || more.length > 0) {
    throw new Error(`Agent ${agentId} has ${pid === undefined ? 0 : 1 + more.length} VM processes`);
  }
  return pid;
}

/** False for a process that is gone, or of which only the exit status is left. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    return !stat.slice(stat.lastIndexOf(")") + 2).startsWith("Z");
  } catch {
    return false;
  }
}

export function ended(pid: number): Promise<void> {
  return until(`process ${pid} to end`, () => !isAlive(pid));
}

/** Ends a VM from outside, as a crash would. */
export async function crash(under: DaemonUnderTest, agentId: string): Promise<void> {
  const pid = machineOf(under, agentId);
  process.kill(pid, "SIGKILL");
  await ended(pid);
}

/** The error that `call` ends in. @throws where it succeeds, or fails with something that has no code */
export async function refusal(call: Promise<unknown>): Promise<PerdureError> {
  const outcome = await call.then(
    (value: unknown) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if (!("error" in outcome)) {
    throw new Error(`Succeeded, with ${JSON.stringify(outcome.value)}`);
  }
  if (outcome.error instanceof PerdureError) return outcome.error;
  throw outcome.error;
}
