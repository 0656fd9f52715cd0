/**
 * The one error class and its closed table of codes.
 *
 * The table is the wire contract: code → HTTP status → whether the same call may be sent again →
 * meaning. The SDK rebuilds the same class from an answer's `code`.
 *
 * - `never`: sending the same call again cannot help before something else changes.
 * - `safe`: nothing was changed; the same call may be sent again.
 * - `check`: something may have been changed; look at the agent first.
 */

export type Retry = "never" | "safe" | "check";

interface ErrorRow {
  readonly status: number;
  readonly retry: Retry;
  readonly meaning: string;
}

const table = {
  // Requests
  bad_request: row(400, "never", "A field is missing, malformed or out of range."),
  not_found: row(404, "never", "There is no such route."),
  not_supported: row(501, "never", "This build or host cannot do that."),
  too_large: row(413, "never", "The body is larger than the limit named in the message."),
  idempotency_conflict: row(
    422,
    "never",
    "The `Idempotency-Key` was sent before with another request.",
  ),
  idempotency_unfinished: row(
    409,
    "check",
    "A request with this `Idempotency-Key` was begun; how it ended is not known.",
  ),
  // Callers over TCP
  unauthenticated: row(401, "never", "No API key was sent, or one that is not valid."),
  forbidden: row(403, "never", "The API key does not allow this."),
  key_not_found: row(404, "never", "No API key has this name or id."),
  key_exists: row(409, "never", "Another API key already has this name."),
  // Agents
  agent_not_found: row(404, "never", "No agent has this name or id."),
  agent_exists: row(409, "never", "Another agent already has this name."),
  agent_state: row(409, "never", "The verb is not legal in the agent's state."),
  agent_quarantined: row(409, "never", "The wake gate refused to let the agent out."),
  agent_failed: row(409, "never", "The agent failed; `wake` or `recover` is the way back."),
  hold_not_found: row(404, "never", "The agent has no hold of this number, or it has ended."),
  sleep_cancelled: row(409, "safe", "A call arrived before the sleep was published."),
  agent_paused: row(507, "safe", "The VM is paused because the host's disk is full."),
  interrupted: row(
    409,
    "check",
    "The connection ended because the agent slept, stopped or moved on.",
  ),
  stale_generation: row(409, "never", "The caller speaks for a generation that is over."),
  // Checkpoints
  checkpoint_not_found: row(404, "never", "The agent has no checkpoint of this id or name."),
  checkpoint_exists: row(409, "never", "Another checkpoint of the agent has this name."),
  checkpoint_continued: row(
    409,
    "never",
    "A checkpoint that was let out is continued only by restore or recover.",
  ),
  checkpoint_digest_mismatch: row(
    500,
    "never",
    "A checkpoint's bytes are not those that were written.",
  ),
  checkpoint_signature: row(500, "never", "The manifest was not signed by this host's key."),
  checkpoint_incompatible: row(
    409,
    "never",
    "This host or these settings cannot honour the checkpoint.",
  ),
  checkpoint_key_missing: row(
    409,
    "never",
    "The agent's key is gone, so its checkpoints cannot be read.",
  ),
  export_invalid: row(422, "never", "The file is no whole export of an agent, or was changed."),
  export_too_new: row(422, "never", "The export was written in a format of a newer daemon."),
  export_passphrase: row(403, "never", "The export's passphrase is missing or another one."),
  freeze_timeout: row(409, "safe", "The workload did not freeze in time."),
  flush_timeout: row(409, "safe", "The guest's file systems were not flushed in time."),
  clock_skew: row(500, "safe", "The guest's clock could not be set within the limit."),
  // Machines
  wake_timeout: row(
    504,
    "safe",
    "The VM did not answer before the wake's deadline; it was torn down.",
  ),
  machine_failed: row(500, "check", "The VM process ended or refused a command."),
  machine_start_failed: row(500, "safe", "A VM could not be started on this host."),
  guest_protocol_violation: row(
    502,
    "check",
    "The guest sent something that the protocol does not allow.",
  ),
  guest_timeout: row(504, "check", "The guest did not answer in time."),
  guest_unreachable: row(503, "safe", "The link into the VM is closed."),
  guest_error: row(502, "check", "The guest agent reported an error of its own."),
  // Processes and files inside
  process_not_found: row(404, "never", "No such process is known in this agent."),
  process_ended: row(409, "never", "The process has ended."),
  process_running: row(409, "never", "The process is still running."),
  exec_failed: row(422, "never", "The program could not be started."),
  user_not_found: row(422, "never", "The VM has no such user."),
  stdin_closed: row(409, "never", "The process no longer reads its input."),
  path_not_found: row(404, "never", "The path does not exist in the VM."),
  path_denied: row(403, "never", "The user may not touch this path."),
  path_is_link: row(409, "never", "A symbolic link stands in the path; links are never followed."),
  path_is_directory: row(409, "never", "The path is a directory."),
  path_not_file: row(409, "never", "The path is not a regular file."),
  path_not_folder: row(409, "never", "The path is not a folder."),
  path_exists: row(409, "never", "Something stands at the path already."),
  path_not_empty: row(409, "never", "The folder is not empty."),
  path_crosses_mount: row(409, "never", "The work would cross into another file system."),
  port_refused: row(502, "safe", "No program inside listens on this port."),
  connection_reset: row(502, "check", "The program inside broke the connection off."),
  range_not_satisfiable: row(416, "never", "The range begins behind the end of the file."),
  size_mismatch: row(400, "never", "The body does not have the size that was announced."),
  too_many: row(429, "safe", "A limit on things open at once was reached."),
  deadline_exceeded: row(504, "check", "The work was not done in the time given."),
  cancelled: row(499, "check", "The caller went away."),
  // Images and templates
  image_not_found: row(404, "never", "No image has this name or id."),
  image_build_failed: row(500, "safe", "The image could not be built."),
  image_archive_invalid: row(
    422,
    "never",
    "The archive is broken, or holds something that no image may hold.",
  ),
  image_in_use: row(409, "never", "An agent stands on the image, so it cannot be removed."),
  image_lint_failed: row(422, "never", "The image holds keys or fixed identities."),
  template_failed: row(500, "safe", "The image could not be booted into a template."),
  // Host
  disk_full: row(507, "safe", "The host's disk has less free space than the message names."),
  host_not_ready: row(503, "never", "The host lacks something that `perdure doctor` names."),
  data_too_new: row(500, "never", "The data was written by a newer daemon; use that one."),
  daemon_running: row(409, "never", "Another daemon holds this data directory."),
  daemon_unreachable: row(503, "safe", "No daemon answers on this socket."),
  store_failed: row(500, "check", "The state store refused a transaction."),
  internal: row(500, "check", "A defect in Perdure; the daemon's log has the details."),
} as const satisfies Record<string, ErrorRow>;

function row(status: number, retry: Retry, meaning: string): ErrorRow {
  return { status, retry, meaning };
}

/** Every code that Perdure reports. */
export type ErrorCode = keyof typeof table;

/** Code → HTTP status, retry rule and meaning: generated into docs/reference/errors.md. */
export const errorTable: Readonly<Record<ErrorCode, ErrorRow>> = table;

export const errorCodes = Object.keys(table) as [ErrorCode, ...ErrorCode[]];

export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === "string" && Object.hasOwn(table, code);
}

export interface PerdureErrorOptions {
  /** What to do next, in one sentence. */
  readonly hint?: string;
  /** Facts a program may want: strings and numbers only, never secrets. */
  readonly details?: Readonly<Record<string, string | number | boolean>>;
  readonly cause?: unknown;
}

/**
 * Everything that Perdure throws on purpose.
 *
 * The message starts with a capital letter, quotes values, and names the action and the state it met
 * (`Cannot wake agent "a1": state is removed`); `hint` says what to do next.
 */
export class PerdureError extends Error {
  override readonly name = "PerdureError";
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, string | number | boolean>>;

  constructor(code: ErrorCode, message: string, options: PerdureErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
    this.details = options.details ?? {};
  }

  get status(): number {
    return errorTable[this.code].status;
  }

  get retry(): Retry {
    return errorTable[this.code].retry;
  }

  /** The body of an error answer. */
  toJSON(): ErrorBody {
    return {
      code: this.code,
      message: this.message,
      retry: this.retry,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
      ...(Object.keys(this.details).length === 0 ? {} : { details: this.details }),
    };
  }

  static fromBody(body: ErrorBody): PerdureError {
    return new PerdureError(body.code, body.message, {
      ...(body.hint === undefined ? {} : { hint: body.hint }),
      ...(body.details === undefined ? {} : { details: body.details }),
    });
  }

  /** `error` itself where it is one of ours, else wrapped as `code`. */
  static from(error: unknown, code: ErrorCode = "internal"): PerdureError {
    if (error instanceof PerdureError) return error;
    const message = error instanceof Error ? error.message : String(error);
    return new PerdureError(code, capitalised(message), { cause: error });
  }
}

export interface ErrorBody {
  readonly code: ErrorCode;
  readonly message: string;
  readonly retry: Retry;
  readonly hint?: string;
  readonly details?: Readonly<Record<string, string | number | boolean>>;
}

function capitalised(message: string): string {
  return message.charAt(0).toUpperCase() + message.slice(1);
}
