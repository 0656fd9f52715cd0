/** Who may call into a sandbox: whoever has its access token, or a path that was signed with it. */
import type { IncomingMessage } from "node:http";
import { setImmediate } from "node:timers/promises";
import type { AgentId } from "@perdure/protocol";
import type { Agent } from "../../core/agent.ts";
import { RefusalLimit } from "../refusal-limit.ts";
import type { SignedPath } from "./access-token.ts";
import type { Aim } from "../aim.ts";
import type { Caller } from "./caller.ts";
import type { E2bContext } from "./e2b-context.ts";
import { sandboxGone } from "./e2b-error.ts";
import { agentOf, sandboxIdOf } from "./sandbox-id.ts";

export type Admitted =
  | { readonly kind: "in"; readonly caller: Omit<Caller, "user"> }
  | { readonly kind: "refused"; readonly status: number; readonly body: object };

/** Agents whose signature is looked for at a time, without keeping others waiting. */
const TRIED_AT_ONCE = 500;

type Letting = (
  request: IncomingMessage,
  aim: Extract<Aim, { kind: "services" | "signed" }>,
) => Promise<Admitted>;

export function letIn({ state, tokens, clock }: E2bContext): Letting {
  const limit = new RefusalLimit();

  /** Whose token the path was signed with: where one URL is for all sandboxes, it does not say. */
  async function signerOf(signed: SignedPath): Promise<AgentId | null> {
    for (let after: AgentId | null = null; ;) {
      const ids: readonly AgentId[] = await state.agentIds(after, TRIED_AT_ONCE);
      const found = ids.find((id) => tokens.isSigned(id, signed, clock.nowMs()));
      if (found !== undefined) return found;
      const last = ids.at(-1);
      if (last === undefined || ids.length < TRIED_AT_ONCE) return null;
      after = last;
      await setImmediate();
    }
  }

  return async (request, aim) => {
    const signed = signedPath(request);
    if (aim.kind === "signed") {
      const id = signed === null ? null : await signerOf(signed);
      const agent = id === null ? null : await state.agent(id);
      if (agent !== null) return admitted(agent);
      // Each of them looks through all: guessing is not for free.
      const waitMs = limit.note(request.socket.remoteAddress ?? "", clock.nowMs());
      return waitMs > 0 ? refused(429, "Too many signatures were refused") : refused(401, noToken);
    }
    const { sandbox } = aim;
    const id = agentOf(sandbox);
    const agent = id === null ? null : await state.agent(id);
    if (agent === null || agent.state === "removed") {
      return { kind: "refused", status: 502, body: sandboxGone(sandbox.slice(0, 64)) };
    }
    const sent = request.headers["x-access-token"];
    const isIn =
      (typeof sent === "string" && tokens.isRight(agent.id, "services", sent)) ||
      (signed !== null && tokens.isSigned(agent.id, signed, clock.nowMs()));
    return isIn ? admitted(agent) : refused(401, noToken);
  };
}

const noToken = "The access token or signature is missing, not right, or past its end";

function refused(status: number, message: string): Admitted {
  return { kind: "refused", status, body: { code: status, message } };
}

/** One that rests is woken by traffic, or is to clients as one that is not there, as its owner has said. */
function admitted(agent: Agent): Admitted {
  const { id, tenant, wakeOnTraffic = true } = agent;
  if (!wakeOnTraffic && rests(agent)) {
    const body = sandboxGone(sandboxIdOf(id), "The sandbox is paused");
    return { kind: "refused", status: 502, body };
  }
  return { kind: "in", caller: { id, target: { tenant, agent: id } } };
}

function rests({ state }: Agent): boolean {
  switch (state) {
    case "creating":
    case "waking":
    case "awake":
      return false;
    case "falling-asleep":
    case "asleep":
    case "stopping":
    case "stopped":
    case "quarantined":
    case "failed":
    case "removed":
      return true;
  }
}

/** Null where the request is for no file, or not signed. */
function signedPath({ method, url = "" }: IncomingMessage): SignedPath | null {
  const [path = "", query = ""] = url.split("?", 2);
  const operation = method === "GET" ? "read" : method === "POST" ? "write" : null;
  if (path !== "/files" || operation === null) return null;
  const sent = new URLSearchParams(query);
  const signature = sent.get("signature");
  if (signature === null) return null;
  return {
    path: sent.get("path") ?? "",
    operation,
    user: sent.get("username") ?? "",
    signature,
    expiration: sent.get("signature_expiration"),
  };
}
