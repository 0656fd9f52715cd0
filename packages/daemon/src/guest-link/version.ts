/** Which version of the protocol an operation needs, and what a guest that is older gets: nothing. */
import { PerdureError } from "@perdure/protocol";
import type { Epoch } from "./epoch.ts";
import { operation, type Operation } from "./operation.ts";

/** @param op any number, also one that is no operation */
export function operationVersion(op: number): number {
  if (op >= operation.connect) return 3;
  return op >= operation.resize ? 2 : 1;
}

/**
 * @param action as it reads after "Cannot"
 * @throws `not_supported` where the guest agent at the other end is older than `op`
 */
export function requireVersion(epoch: Epoch, op: Operation, action: string): void {
  const needed = operationVersion(op);
  if (epoch.version >= needed) return;
  throw new PerdureError(
    "not_supported",
    `Cannot ${action}: this agent's guest agent speaks version ${epoch.version} of the protocol, version ${needed} is needed`,
    {
      hint: "It is as old as the agent's image, and a cold start does not change that: a new agent has it.",
      details: { guestVersion: epoch.version, neededVersion: needed },
    },
  );
}
