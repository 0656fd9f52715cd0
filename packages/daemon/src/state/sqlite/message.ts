/** What the daemon's main thread and the store's worker say to each other. */
import type { ErrorBody } from "@perdure/protocol";
import type {
  AgeQuery,
  AgentQuery,
  AgentPageQuery,
  EventQuery,
  KeyQuery,
  StateChange,
} from "../../core/ports/state-store.ts";

export type StoreRequest =
  | { readonly kind: "commit"; readonly changes: readonly StateChange[] }
  | { readonly kind: "agent"; readonly id: string }
  | { readonly kind: "agentByName"; readonly tenant: string; readonly name: string }
  | { readonly kind: "listAgents"; readonly query: AgentQuery }
  | { readonly kind: "allAgents" }
  | { readonly kind: "agentsByAge"; readonly query: AgeQuery }
  | { readonly kind: "due"; readonly limit: number }
  | { readonly kind: "unsettledAgents" }
  | { readonly kind: "lastAsleep"; readonly limit: number }
  | { readonly kind: "agentIds"; readonly after: string | null; readonly limit: number }
  | { readonly kind: "checkpoints"; readonly agent: string }
  | { readonly kind: "checkpointPage"; readonly query: AgentPageQuery }
  | { readonly kind: "checkpoint"; readonly id: string }
  | { readonly kind: "connectionPage"; readonly query: AgentPageQuery }
  | { readonly kind: "unmediatedSince"; readonly agent: string; readonly atMs: number }
  | { readonly kind: "events"; readonly query: EventQuery }
  | { readonly kind: "key"; readonly id: string }
  | { readonly kind: "keyByName"; readonly tenant: string; readonly name: string }
  | { readonly kind: "keys"; readonly query: KeyQuery }
  | { readonly kind: "request"; readonly principal: string; readonly key: string }
  | { readonly kind: "close" };

export interface NumberedRequest {
  readonly number: number;
  readonly request: StoreRequest;
}

export type NumberedAnswer =
  | { readonly number: number; readonly value: unknown }
  | { readonly number: number; readonly error: ErrorBody };

/** The first message of the worker: number 0, without a value where the database is open. */
export const OPENED = 0;

/** A message that answers nothing: its value says whether the ballast is held, after each change. */
export const BALLAST = -1;
