/** Errors as E2B's clients read them: of its API, of a sandbox that is not there, and of the Connect services. */
import { Code, ConnectError } from "@connectrpc/connect";
import type { FastifyReply } from "fastify";
import { PerdureError } from "@perdure/protocol";
import type { ErrorCode } from "@perdure/protocol";
import { toPerdureError } from "../error-answer.ts";

/** Statuses that clients give another meaning than ours. */
const statuses: Partial<Record<ErrorCode, number>> = {
  // 409 of a pause means that the sandbox is paused already.
  sleep_cancelled: 503,
  // None that they know.
  cancelled: 400,
};

/** `{code, message}` with the status as its code. */
export function sendE2bError(reply: FastifyReply, raised: unknown): void {
  const error = toPerdureError(raised);
  const status = statuses[error.code] ?? error.status;
  const { retryAfterMs } = error.details;
  if (typeof retryAfterMs === "number") {
    void reply.header("retry-after", Math.ceil(retryAfterMs / 1000));
  }
  sendCode(reply, status, messageOf(error));
}

export function sendCode(reply: FastifyReply, code: number, message: string): void {
  void reply.code(code).type("application/json").send(JSON.stringify({ code, message }));
}

/** Of what was sent in place of an id, as it is said again. */
const SANDBOX_CHARACTERS_MAX = 64;

/** What stands in for a sandbox that does not run: clients take this status for that, and no other. */
export function sandboxGone(sandboxId: string, message = "The sandbox was not found") {
  return { message, sandboxId, code: 502 };
}

/** What stands in for a program inside that is not reached. */
export function portError(
  error: PerdureError,
  { sandbox, port, status }: { sandbox: string; port: number; status: number },
) {
  const gone = sandboxGone(sandbox.slice(0, SANDBOX_CHARACTERS_MAX), portMessage(error));
  return { ...gone, port, code: status };
}

function portMessage(error: PerdureError): string {
  switch (error.code) {
    case "agent_not_found":
      return "The sandbox was not found";
    case "agent_state":
      return "The sandbox is paused";
    case "port_refused":
      return "The sandbox is running but port is not open";
    default:
      return messageOf(error);
  }
}

export function messageOf({ message, hint }: PerdureError): string {
  return hint === undefined ? message : `${message}. ${hint}`;
}

/** Statuses of what is asked about files over plain HTTP. */
export function sendFileError(reply: FastifyReply, raised: unknown): void {
  const error = toPerdureError(raised);
  const status = error.code === "user_not_found" ? 401 : fileStatuses[codeOf(error)];
  sendCode(reply, status ?? error.status, messageOf(error));
}

const fileStatuses: Partial<Record<Code, number>> = {
  [Code.InvalidArgument]: 400,
  [Code.NotFound]: 404,
  [Code.Unavailable]: 502,
};

export function toConnectError(raised: unknown): ConnectError {
  if (raised instanceof ConnectError) return raised;
  const error = PerdureError.from(raised);
  const code = codeOf(error);
  // What a defect says is for the daemon's log.
  const text = error.code === "internal" ? "A defect in the daemon" : messageOf(error);
  return new ConnectError(text, code, undefined, undefined, raised);
}

function codeOf({ code, status }: PerdureError): Code {
  const found = codes[code];
  if (found !== undefined) return found;
  if (status === 404) return Code.NotFound;
  return status < 500 ? Code.FailedPrecondition : Code.Internal;
}

const codes: Partial<Record<ErrorCode, Code>> = {
  bad_request: Code.InvalidArgument,
  exec_failed: Code.InvalidArgument,
  path_is_directory: Code.InvalidArgument,
  path_not_file: Code.InvalidArgument,
  path_not_folder: Code.InvalidArgument,
  path_is_link: Code.InvalidArgument,
  size_mismatch: Code.InvalidArgument,
  unauthenticated: Code.Unauthenticated,
  user_not_found: Code.Unauthenticated,
  forbidden: Code.PermissionDenied,
  path_denied: Code.PermissionDenied,
  path_exists: Code.AlreadyExists,
  too_large: Code.ResourceExhausted,
  too_many: Code.ResourceExhausted,
  disk_full: Code.ResourceExhausted,
  agent_paused: Code.ResourceExhausted,
  not_supported: Code.Unimplemented,
  process_ended: Code.NotFound,
  agent_not_found: Code.Unavailable,
  agent_state: Code.Unavailable,
  agent_failed: Code.Unavailable,
  agent_quarantined: Code.Unavailable,
  interrupted: Code.Unavailable,
  guest_unreachable: Code.Unavailable,
  daemon_unreachable: Code.Unavailable,
  guest_timeout: Code.DeadlineExceeded,
  wake_timeout: Code.DeadlineExceeded,
  deadline_exceeded: Code.DeadlineExceeded,
  cancelled: Code.Canceled,
};
