/** Files inside the VM: facts, reading under credit, and writing whole or not at all. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { FileFacts, FileWriteOptions } from "../core/ports/guest-link.ts";
import { answerError, call, timeoutError } from "./call.ts";
import {
  PROGRESS_DEADLINE_MS,
  startDeadline,
  USER_DEADLINE_MS,
  WRITTEN_DEADLINE_MS,
} from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { checkPath, quoted } from "./path.ts";
import { Receiver } from "./receiver.ts";
import { Sender } from "./sender.ts";
import type { Stream } from "./stream.ts";
import { requireVersion } from "./version.ts";
import { violation } from "./violation.ts";

const kinds = ["file", "directory", "link", "other"] as const;
const ID_MAX = 2 ** 32 - 1;
const MODE_MAX = 0o177777;
const ATTRIBUTES_MAX = 512;
const ATTRIBUTE_NAME_BYTES_MAX = 255;
const ATTRIBUTE_BYTES_MAX = 8_192;
/** Longest piece that one progress deadline is for. */
const PORTION_BYTES = 1024 * 1024;

export function decodeFacts(fields: Fields): FileFacts {
  const said = fields.string(tag.kind, 16);
  const kind = kinds.find((each) => each === said);
  if (kind === undefined) throw violation("a file of an unknown kind");
  const size = fields.wide(tag.size);
  return {
    kind,
    // A sparse file may claim any size; it is not the guest agent's fault.
    size: Math.min(Number(size), Number.MAX_SAFE_INTEGER),
    mode: fields.number(tag.mode, MODE_MAX),
    uid: fields.number(tag.uid, ID_MAX),
    gid: fields.number(tag.gid, ID_MAX),
    // Before 1970 it is negative.
    mtimeMs: Number(BigInt.asIntN(64, fields.wide(tag.mtimeNs)) / 1_000_000n),
    ...decodeAttributes(fields),
  };
}

function decodeAttributes(fields: Fields): Pick<FileFacts, "attributes"> {
  const found = fields
    .nested(tag.attribute, ATTRIBUTES_MAX)
    .map((one) => [
      one.anyString(tag.name, ATTRIBUTE_NAME_BYTES_MAX),
      one.anyString(tag.bytes, ATTRIBUTE_BYTES_MAX),
    ]);
  return found.length === 0 ? {} : { attributes: Object.fromEntries(found) as never };
}

export async function statFile(
  epoch: Epoch,
  clock: Clock,
  path: string,
  user: string,
): Promise<FileFacts> {
  const action = `look at ${quoted(path)}`;
  checkPath(action, path);
  return call(epoch, clock, {
    op: operation.stat,
    action,
    control: false,
    deadlineMs: USER_DEADLINE_MS,
    fields: new FieldWriter().string(tag.path, path).string(tag.user, user),
    decode: decodeFacts,
  });
}

/** The stream stays open until `bytes` has been read to its end or left. */
export async function readFile(
  epoch: Epoch,
  clock: Clock,
  path: string,
  user: string,
  range?: { readonly offset: number; readonly length?: number },
): Promise<{ facts: FileFacts; bytes: AsyncIterable<Uint8Array> }> {
  const action = `read ${quoted(path)}`;
  checkPath(action, path);
  const receiver = new Receiver();
  const { promise, resolve, reject } = Promise.withResolvers<FileFacts>();
  const fail = (error: PerdureError): void => {
    reject(error);
    receiver.finish(error);
  };
  // Guests of version 1 know ranges, too.
  const fields = new FieldWriter()
    .string(tag.path, path)
    .string(tag.user, user)
    .number(tag.offset, range?.offset)
    .number(tag.length, range?.length);
  const options = { control: false, action };
  const stream = epoch.open(operation.readFile, fields.finish(), options, {
    response: (status, answer) => {
      if (status === 0) resolve(decodeFacts(answer));
      else fail(answerError(action, status, answer));
    },
    data: (payload) => receiver.push(payload),
    end: (status, answer) =>
      receiver.finish(status === 0 ? null : answerError(action, status, answer)),
    closed: fail,
  });
  const stop = startDeadline(clock, USER_DEADLINE_MS, () => {
    stream.cancel();
    fail(timeoutError(action, USER_DEADLINE_MS));
  });
  try {
    const facts = await promise;
    return { facts, bytes: new FileBytes(receiver, stream, clock, action) };
  } finally {
    stop();
  }
}

class FileBytes implements AsyncIterableIterator<Uint8Array, undefined> {
  readonly #receiver: Receiver;
  readonly #stream: Stream;
  readonly #clock: Clock;
  readonly #action: string;
  #started = false;

  constructor(receiver: Receiver, stream: Stream, clock: Clock, action: string) {
    this.#receiver = receiver;
    this.#stream = stream;
    this.#clock = clock;
    this.#action = action;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (!this.#started) {
      this.#started = true;
      this.#receiver.start(this.#stream);
    }
    const stop = startDeadline(this.#clock, PROGRESS_DEADLINE_MS, () => {
      this.#stream.cancel();
      this.#receiver.finish(timeoutError(this.#action, PROGRESS_DEADLINE_MS));
    });
    try {
      const value = await this.#receiver.take();
      return value === null ? { done: true, value: undefined } : { done: false, value };
    } finally {
      stop();
    }
  }

  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#started = true;
    this.#receiver.stop();
    this.#stream.cancel();
    return Promise.resolve({ done: true, value: undefined });
  }
}

export async function writeFile(
  epoch: Epoch,
  clock: Clock,
  path: string,
  options: FileWriteOptions,
  bytes: AsyncIterable<Uint8Array>,
): Promise<void> {
  const action = `write ${quoted(path)}`;
  checkPath(action, path);
  const sender = new Sender(epoch, action);
  const fields = new FieldWriter()
    .string(tag.path, path)
    .string(tag.user, options.user)
    .number(tag.mode, options.mode)
    .number(tag.size, options.size);
  for (const [name, value] of Object.entries(options.attributes ?? {})) {
    requireVersion(epoch, operation.connect, `set attributes of ${quoted(path)}`);
    const attribute = new FieldWriter().string(tag.name, name).string(tag.bytes, value);
    fields.nested(tag.attribute, attribute);
  }
  sender.start(
    epoch.open(operation.writeFile, fields.finish(), { control: false, action }, sender.events),
  );
  const within = async <T>(deadlineMs: number, work: Promise<T>): Promise<T> => {
    const stop = startDeadline(clock, deadlineMs, () =>
      sender.fail(timeoutError(action, deadlineMs)),
    );
    return work.finally(stop);
  };
  const source = bytes[Symbol.asyncIterator]();
  try {
    let sent = 0;
    for (;;) {
      const next = await sender.orFailure(Promise.resolve(source.next()));
      if (next.done === true) break;
      sent += next.value.length;
      if (sent > options.size) throw mismatch(action, options.size, "more");
      for (let at = 0; at < next.value.length; at += PORTION_BYTES) {
        const portion = next.value.subarray(at, at + PORTION_BYTES);
        await within(PROGRESS_DEADLINE_MS, sender.send(portion));
      }
    }
    if (sent < options.size) throw mismatch(action, options.size, `only ${sent}`);
    sender.end();
    await within(WRITTEN_DEADLINE_MS, sender.answer());
  } catch (error) {
    sender.fail(PerdureError.from(error));
    // Not waited for: a source that is stuck must not hold back the error.
    void Promise.resolve(source.return?.()).catch(() => undefined);
    throw error;
  }
}

function mismatch(action: string, size: number, came: string): PerdureError {
  return new PerdureError(
    "size_mismatch",
    `Cannot ${action}: ${size} bytes were announced, ${came} came`,
  );
}
