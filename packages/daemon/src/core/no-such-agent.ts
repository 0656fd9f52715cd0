import { PerdureError } from "@perdure/protocol";

/** @param ref a name or an id */
export function noSuchAgent(ref: string): PerdureError {
  return new PerdureError("agent_not_found", `No agent has the name or id "${ref}"`, {
    hint: '"perdure list" shows those that exist',
  });
}
