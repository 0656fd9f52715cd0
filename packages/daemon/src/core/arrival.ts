/**
 * Arrival: memory and disk that came from a file are another computer's (I3). Whoever goes on from them gets
 * an identity of its own before anything in it thaws, as a fork does. The first time that an agent which came
 * so is let out is the route `import`, by whatever verb; after that a checkpoint of the file is gone back to
 * by `restore` or `recover`, and is just as foreign.
 */
import type { CheckpointKind, Route } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { GuestIdentity } from "./ports/guest-link.ts";

/** @param kind of the checkpoint that it goes on from; null: its newest disk */
export async function arrival(
  { agent, parts }: Actor,
  route: Route,
  kind: CheckpointKind | null,
): Promise<{ readonly route: Route; readonly identity: GuestIdentity | null }> {
  const isFirst = agent.identityDue === true;
  if (!isFirst && kind !== "import") return { route, identity: null };
  return { route: isFirst ? "import" : route, identity: await parts.identities.make(agent.name) };
}
