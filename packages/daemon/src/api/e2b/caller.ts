/** Who calls into a sandbox: the agent, known to be there and let in by its token, and the user inside. */
import type { IncomingHttpHeaders } from "node:http";
import { createContextKey } from "@connectrpc/connect";
import { PerdureError } from "@perdure/protocol";
import type { AgentId } from "@perdure/protocol";
import type { Target } from "../../core/command.ts";

export interface Caller {
  readonly id: AgentId;
  readonly target: Target;
  /** By a user name over HTTP's basic scheme; null: none was named. */
  readonly user: string | null;
}

export const callerKey = createContextKey<Caller | null>(null, { description: "caller" });

/** @throws `bad_request` */
export function userIn({ authorization }: IncomingHttpHeaders): string | null {
  const [, sent] = /^Basic +([A-Za-z0-9+/=]+) *$/i.exec(authorization ?? "") ?? [];
  if (sent === undefined) return null;
  const [name = ""] = Buffer.from(sent, "base64").toString().split(":", 1);
  if (name === "") return null;
  if (name.length <= 64 && !name.includes("\0")) return name;
  throw new PerdureError("bad_request", "Cannot use the user: its name is too long");
}
