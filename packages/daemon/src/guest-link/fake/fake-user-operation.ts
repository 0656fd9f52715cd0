/** Processes and files of the fake guest: what users may do once it is let out. */
import { type Fields, FieldWriter } from "../field.ts";
import { status, tag } from "../operation.ts";
import { FakeFailure, uidOf, type FakeFile } from "./fake-file.ts";
import type { FakeStream } from "./fake-port.ts";
import { exitFields, type FakeProcess } from "./fake-process.ts";
import { fakeSteps } from "./fake-program.ts";
import type { FakeInside } from "./fake-state.ts";

const LOG_BYTES = 1024 * 1024;
const LIST_BYTES_MAX = 65_000;
const STDIN_WINDOW_BYTES = 64 * 1024;
const FILE_WINDOW_BYTES = 256 * 1024;
const DATA_BYTES_MAX = 32 * 1024;
const OUTPUT_HEADER_BYTES = 16;

export function find(guest: FakeInside, fields: Fields): FakeProcess {
  const found = guest.processes.get(fields.number(tag.process));
  if (found === undefined)
    throw new FakeFailure(status.processNotFound, "There is no such process");
  return found;
}

export function running(guest: FakeInside, fields: Fields): FakeProcess {
  const process = find(guest, fields);
  if (process.state.exit !== null) throw new FakeFailure(status.processEnded, "It has ended");
  return process;
}

export function exec(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const user = fields.string(tag.user);
  uidOf(user);
  const cwd = fields.optionalString(tag.cwd);
  if (cwd !== undefined) guest.files.stat(cwd, 0);
  const argv = fields.strings(tag.argv, 1024);
  const terminal = fields.has(tag.rows) ? terminalSize(fields) : null;
  const process = guest.state.nextProcess++;
  const pid = 100 + process;
  guest.add({
    process,
    pid,
    argv,
    user,
    startedMs: guest.nowMs(),
    stdin: fields.flag(tag.stdin) || terminal !== null,
    terminal,
    log: { limit: fields.optionalNumber(tag.logBytes) ?? LOG_BYTES, pieces: [], end: 0 },
    steps: fakeSteps(argv),
    leftMs: fields.optionalNumber(tag.timeoutMs) ?? null,
    stdinEnded: false,
    exit: null,
  });
  stream.respond(status.ok, new FieldWriter().number(tag.process, process).number(tag.pid, pid));
}

function terminalSize(fields: Fields): { rows: number; columns: number } {
  return { rows: fields.number(tag.rows, 4096), columns: fields.number(tag.columns, 4096) };
}

export function resize(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const { state } = running(guest, fields);
  if (state.terminal === null) throw new FakeFailure(status.notSupported, "It has no terminal");
  state.terminal = terminalSize(fields);
  stream.respond(status.ok);
}

export function attach(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const process = find(guest, fields);
  const { log, state } = process;
  const pump = (): void => {
    while (stream.open) {
      const room = Math.min(stream.credit - OUTPUT_HEADER_BYTES, DATA_BYTES_MAX);
      const piece = log.read(reader.offset, Math.max(room, 0));
      if (piece === undefined) break;
      const cut = piece.channel === 0 ? Buffer.alloc(16) : undefined;
      if (room < (cut?.length ?? 1)) return;
      cut?.writeBigUInt64LE(BigInt(piece.offset), 0);
      cut?.writeBigUInt64LE(BigInt(piece.end), 8);
      const header = Buffer.alloc(OUTPUT_HEADER_BYTES);
      header[0] = piece.channel;
      header.writeBigUInt64LE(BigInt(piece.offset), 8);
      reader.offset = piece.end;
      stream.data(header, cut ?? piece.bytes);
      process.poke();
    }
    if (state.exit === null || !stream.open) return;
    process.readers.delete(reader);
    stream.end(status.ok, exitFields(state));
  };
  const reader = { offset: fields.number(tag.offset), wake: pump };
  process.readers.add(reader);
  stream.onWindow = pump;
  stream.onClose = () => {
    process.readers.delete(reader);
    process.poke();
  };
  const answer = new FieldWriter().number(tag.logStart, log.start).number(tag.logEnd, log.end);
  stream.respond(status.ok, answer, false);
  pump();
}

export function openStdin(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const process = running(guest, fields);
  if (!process.state.stdin || process.state.stdinEnded) {
    throw new FakeFailure(status.stdinClosed, "Its input is closed");
  }
  let heldBytes = 0;
  stream.respond(status.ok, new FieldWriter(), false);
  stream.grant(STDIN_WINDOW_BYTES);
  stream.onData = (bytes) => {
    heldBytes += bytes.length;
    process.input(bytes);
  };
  stream.onEnd = () => process.endInput();
  process.onStdinTaken = () => {
    if (process.state.exit !== null) stream.end(status.stdinClosed);
    else if (heldBytes > 0) stream.grant(heldBytes);
    heldBytes = 0;
  };
}

/** As many as fit, from the one after `process` on. */
export function listProcesses(guest: FakeInside, stream: FakeStream, request: Fields): void {
  const fields = new FieldWriter();
  const after = request.optionalNumber(tag.process) ?? 0;
  let bytes = 0;
  for (const { state, log } of guest.processes.values()) {
    if (state.process <= after) continue;
    const entry = new FieldWriter()
      .number(tag.process, state.process)
      .number(tag.pid, state.pid)
      .number(tag.startedNs, BigInt(Math.round(state.startedMs)) * 1_000_000n)
      .flag(tag.running, state.exit === null)
      .number(tag.logStart, log.start)
      .number(tag.logEnd, log.end)
      .string(tag.user, state.user)
      .add(exitFields(state));
    for (const argument of state.argv) entry.string(tag.argv, argument);
    bytes += entry.finish().length + 6;
    if (bytes > LIST_BYTES_MAX) break;
    fields.nested(tag.entry, entry);
  }
  stream.respond(status.ok, fields);
}

export function factFields(file: FakeFile, size: number): FieldWriter {
  const fields = new FieldWriter()
    .string(tag.kind, file.kind)
    .number(tag.size, size)
    .number(tag.mode, file.mode)
    .number(tag.uid, file.uid)
    .number(tag.gid, file.uid)
    .number(tag.mtimeNs, BigInt(Math.round(file.mtimeMs)) * 1_000_000n);
  for (const [name, value] of Object.entries(file.attributes ?? {})) {
    const attribute = new FieldWriter().string(tag.name, name).string(tag.bytes, value);
    fields.nested(tag.attribute, attribute);
  }
  return fields;
}

export function readFile(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const path = fields.string(tag.path);
  const { file, bytes: whole } = guest.files.read(path, uidOf(fields.string(tag.user)));
  const from = fields.optionalNumber(tag.offset) ?? 0;
  const bytes = whole.subarray(from, from + (fields.optionalNumber(tag.length) ?? whole.length));
  let at = 0;
  const pump = (): void => {
    while (at < bytes.length && stream.credit > 0) {
      const portion = bytes.subarray(at, at + Math.min(stream.credit, DATA_BYTES_MAX));
      at += portion.length;
      stream.data(portion);
    }
    if (at === bytes.length) stream.end(status.ok);
  };
  stream.respond(status.ok, factFields(file, whole.length), false);
  stream.onWindow = pump;
  pump();
}

export function writeFile(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const path = fields.string(tag.path);
  const uid = uidOf(fields.string(tag.user));
  const mode = fields.number(tag.mode);
  const size = fields.number(tag.size);
  const attributes = Object.fromEntries(
    fields.nested(tag.attribute, 512).map((one) => [one.string(tag.name), one.string(tag.bytes)]),
  );
  guest.files.checkWrite(path, uid);
  const parts: Uint8Array[] = [];
  let ungranted = 0;
  stream.grant(FILE_WINDOW_BYTES);
  stream.onData = (bytes) => {
    parts.push(bytes.slice());
    ungranted += bytes.length;
    if (ungranted < FILE_WINDOW_BYTES / 2) return;
    stream.grant(ungranted);
    ungranted = 0;
  };
  stream.onEnd = () => {
    const whole = Buffer.concat(parts);
    if (whole.length !== size) {
      stream.fail(status.sizeMismatch, `${whole.length} bytes came`);
      return;
    }
    guest.files.write(path, uid, { mode, bytes: whole, attributes }, guest.nowMs());
    guest.state.fileWrites++;
    stream.respond(status.ok);
  };
}
