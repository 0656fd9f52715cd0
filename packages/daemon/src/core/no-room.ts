/** VMs that stand still because the host's disk is full: how that is known, and what callers are told. */
import { PerdureError } from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import type { Log } from "./ports/log.ts";
import type { Machine } from "./ports/substrate.ts";

/** What a call to an agent ends in whose VM stands still. How much room it will want, only its guest knows. */
export function agentPaused({ name }: Pick<Agent, "name">, paused: string): PerdureError {
  return new PerdureError("agent_paused", `Agent "${name}" is awake but paused: ${paused}`, {
    hint: "Free room on the host's disk; the agent goes on by itself",
  });
}

/** A wake that was undone because the guest could not write. Nothing was lost. */
export function noRoomToWake(name: string, detail: string): PerdureError {
  return new PerdureError(
    "disk_full",
    `The host's disk has no room for what agent "${name}" writes when it wakes: ${detail}`,
    { hint: "Nothing was lost: free room on the host's disk, then try again" },
  );
}

/** The state store holds its reserve again, or lives on it. */
export function tellOfReserve(log: Log, held: boolean): void {
  if (held) log("info", "There is room on the disk again; new agents are taken on");
  else log("warn", "The disk is full: changes of state use the reserve; new agents are refused");
}

/** Whether the VM waits for room now, recorded or not. */
export function waitsForRoom(machine: Machine): boolean {
  const told: string[] = [];
  // Told within the call for as long as it waits.
  machine.onEvent(({ kind }) => told.push(kind))();
  return told.includes("io-error");
}
