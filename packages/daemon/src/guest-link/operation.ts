/**
 * Numbers of the guest link, version 3, as docs/internals/guest-link.md lists them: operations,
 * field tags, event kinds, and the guest's status codes with the error each one becomes.
 */
import { PerdureError, type ErrorCode } from "@perdure/protocol";
import { printable } from "./violation.ts";

/** Highest version of the protocol that this end speaks. */
export const PROTOCOL_VERSION = 3;

export const operation = {
  info: 1,
  ping: 2,
  clockAdjust: 3,
  entropy: 4,
  flush: 5,
  freeze: 6,
  thaw: 7,
  generation: 8,
  identity: 9,
  hooks: 10,
  exec: 11,
  attach: 12,
  stdin: 13,
  signal: 14,
  processes: 15,
  forget: 16,
  readFile: 17,
  writeFile: 18,
  stat: 19,
  stats: 20,
  timers: 21,
  dropCaches: 22,
  shutdown: 23,
  // From version 2 on.
  resize: 24,
  listFolder: 25,
  makeFolder: 26,
  movePath: 27,
  removePath: 28,
  watch: 29,
  activity: 30,
  clockSource: 31,
  frozenWaits: 32,
  // From version 3 on.
  connect: 33,
  outbound: 34,
  carry: 35,
} as const;
export type Operation = (typeof operation)[keyof typeof operation];

export const tag = {
  message: 1,
  deadlineMs: 2,
  version: 3,
  realtimeNs: 4,
  monotonicNs: 5,
  deltaNs: 6,
  bytes: 7,
  generation: 8,
  json: 9,
  argv: 10,
  env: 11,
  cwd: 12,
  user: 13,
  timeoutMs: 14,
  stdin: 15,
  logBytes: 16,
  process: 17,
  pid: 18,
  exitCode: 19,
  signal: 20,
  running: 21,
  timedOut: 22,
  logStart: 23,
  logEnd: 24,
  channel: 25,
  path: 30,
  mode: 31,
  size: 32,
  kind: 33,
  uid: 34,
  gid: 35,
  mtimeNs: 36,
  offset: 37,
  length: 38,
  frozen: 40,
  bootId: 41,
  hostname: 42,
  machineId: 43,
  file: 44,
  hook: 45,
  timer: 46,
  stat: 47,
  entry: 48,
  name: 49,
  value: 50,
  startedNs: 51,
  dueInMs: 52,
  tree: 53,
  cutFrom: 54,
  cutTo: 55,
  rows: 56,
  columns: 57,
  target: 58,
  parents: 59,
  replace: 60,
  recursive: 61,
  from: 62,
  port: 63,
  attribute: 26,
  connection: 27,
  address: 28,
} as const;

export const eventKind = { processEnded: 1 } as const;

export const status = {
  ok: 0,
  badRequest: 1,
  unknownOperation: 2,
  deadlineExceeded: 3,
  tooMany: 4,
  processNotFound: 5,
  userNotFound: 6,
  pathNotFound: 7,
  pathExists: 8,
  pathDenied: 9,
  pathIsLink: 10,
  pathIsDirectory: 11,
  pathNotFile: 12,
  diskFull: 13,
  sizeMismatch: 14,
  stdinClosed: 15,
  processEnded: 16,
  execFailed: 17,
  processRunning: 18,
  internal: 19,
  notSupported: 20,
  cancelled: 21,
  pathNotFolder: 22,
  pathNotEmpty: 23,
  pathCrossesMount: 24,
  portRefused: 25,
  connectionReset: 26,
} as const;

interface StatusRow {
  readonly code: ErrorCode;
  /** Said where the guest sends no message. */
  readonly meaning: string;
}

const statusTable: ReadonlyMap<number, StatusRow> = new Map<number, StatusRow>([
  [status.badRequest, { code: "bad_request", meaning: "the guest refused the request" }],
  [status.unknownOperation, { code: "not_supported", meaning: "the guest does not know how" }],
  [status.deadlineExceeded, { code: "deadline_exceeded", meaning: "it was not done in time" }],
  [status.tooMany, { code: "too_many", meaning: "too much is open at once" }],
  [status.processNotFound, { code: "process_not_found", meaning: "there is no such process" }],
  [status.userNotFound, { code: "user_not_found", meaning: "there is no such user" }],
  [status.pathNotFound, { code: "path_not_found", meaning: "the path does not exist" }],
  [status.pathExists, { code: "path_exists", meaning: "something stands there already" }],
  [status.pathDenied, { code: "path_denied", meaning: "the user may not touch the path" }],
  [status.pathIsLink, { code: "path_is_link", meaning: "a symbolic link stands in the path" }],
  [status.pathIsDirectory, { code: "path_is_directory", meaning: "the path is a directory" }],
  [status.pathNotFile, { code: "path_not_file", meaning: "the path is not a regular file" }],
  [status.diskFull, { code: "disk_full", meaning: "the disk in the VM is full" }],
  [status.sizeMismatch, { code: "size_mismatch", meaning: "the size is not the announced one" }],
  [status.stdinClosed, { code: "stdin_closed", meaning: "the process no longer reads its input" }],
  [status.processEnded, { code: "process_ended", meaning: "the process has ended" }],
  [status.execFailed, { code: "exec_failed", meaning: "the program could not be started" }],
  [status.processRunning, { code: "process_running", meaning: "the process is still running" }],
  [status.internal, { code: "guest_error", meaning: "the guest agent failed" }],
  [status.notSupported, { code: "not_supported", meaning: "this guest cannot do that" }],
  [status.cancelled, { code: "cancelled", meaning: "it was cancelled" }],
  [status.pathNotFolder, { code: "path_not_folder", meaning: "the path is not a folder" }],
  [status.pathNotEmpty, { code: "path_not_empty", meaning: "the folder is not empty" }],
  [
    status.pathCrossesMount,
    { code: "path_crosses_mount", meaning: "another file system begins there" },
  ],
  [status.portRefused, { code: "port_refused", meaning: "no program listens there" }],
  [
    status.connectionReset,
    { code: "connection_reset", meaning: "the program broke the connection off" },
  ],
]);

/**
 * The error for a status other than ok.
 *
 * @param action what was asked for, after "Cannot": `read "/etc/shadow"`
 * @param message the guest's own words, hostile text
 */
export function statusError(
  action: string,
  statusCode: number,
  message: string | undefined,
): PerdureError {
  const known = statusTable.get(statusCode);
  // The guest, too, begins its sentences with what it could not do.
  const said = printable(message ?? "").replaceAll(`Cannot ${action}: `, "");
  const why = said === "" ? (known?.meaning ?? `status ${statusCode} of the guest`) : said;
  return new PerdureError(known?.code ?? "guest_error", `Cannot ${action}: ${why}`, {
    details: { guestStatus: statusCode },
  });
}
