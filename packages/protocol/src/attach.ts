/**
 * The messages of `GET …/processes/:process/attach`, a WebSocket. docs/reference/attach.md tells them to people.
 *
 * Text messages are JSON, binary ones are bytes: of a client the bytes of standard input, of the daemon a header
 * of 9 bytes and output. Both ways there is a window: what was sent and is not yet taken is at most that many
 * bytes; `credit` gives back what was taken.
 */
import { z } from "zod";
import { errorBodySchema, exitSchema } from "./api.ts";
import { terminalSizeSchema } from "./terminal.ts";
import { flag } from "./query.ts";

export const attachLimits = {
  /** Of a message of a client, bytes. */
  messageBytesMax: 65_536,
  /** Of a text message of a client, bytes. */
  textBytesMax: 4_096,
  /** Bytes of input that a client may have sent and the program not taken. */
  inputWindowBytes: 262_144,
  /** Bounds of `window`, which a client may choose. */
  windowBytesMin: 1_024,
  windowBytesMax: 16_777_216,
  /** Resizes and signals that are not done yet. */
  requestsMax: 32,
  /** The daemon pings so often, milliseconds; who gives no sign of life until the next ping is cut. */
  pingMs: 30_000,
} as const;

/** The subprotocol. A client that cannot send headers sends its key as a second one: see `keyProtocol`. */
export const ATTACH_PROTOCOL = "perdure.attach.v1";

const KEY_PROTOCOL_PREFIX = "perdure.key.";

/** An API key as a subprotocol: base64url of its UTF-8, without padding. */
export function keyProtocol(apiKey: string): string {
  const bytes = new TextEncoder().encode(apiKey);
  const base64 = btoa(String.fromCharCode(...bytes));
  return KEY_PROTOCOL_PREFIX + base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The API key among the subprotocols that a client offers, or null. */
export function keyOfProtocols(header: string | undefined): string | null {
  const offered = (header ?? "").split(",").map((name) => name.trim());
  const found = offered.find((name) => name.startsWith(KEY_PROTOCOL_PREFIX));
  if (found === undefined) return null;
  const base64 = found.slice(KEY_PROTOCOL_PREFIX.length).replaceAll("-", "+").replaceAll("_", "/");
  try {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

const wholeNumber = z
  .string()
  .regex(/^[0-9]{1,15}$/, "must be a whole number")
  .transform(Number);

/** `GET …/processes/:process/attach?offset=&window=&wakes=&hangsUp=` */
export const attachQuerySchema = z.strictObject({
  /** Of the first byte of output that is wanted. */
  offset: wholeNumber.default(0),
  /**
   * Bytes of output that may be on their way; the client sends `credit` for what it has taken. Absent: as many
   * as the connection itself takes.
   */
  window: wholeNumber
    .pipe(z.number().min(attachLimits.windowBytesMin).max(attachLimits.windowBytesMax))
    .optional(),
  /** `false`: an agent that is asleep is not woken, but answered as `agent_state`. */
  wakes: flag("true"),
  /**
   * `true`: where the connection ends before the program has, the program and all that it started get SIGHUP. Not
   * where the daemon or the agent ends it.
   */
  hangsUp: flag("false"),
});

/** Answered by `done` or `refused` with the same number. */
const id = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional();

/** Text messages of a client. */
export const attachRequestSchema = z.discriminatedUnion("type", [
  /** The end of standard input; a terminal types ^D. */
  z.strictObject({ type: z.literal("end") }),
  z.strictObject({ type: z.literal("resize"), id, ...terminalSizeSchema.shape }),
  z.strictObject({
    type: z.literal("signal"),
    id,
    signal: z.number().int().min(1).max(64),
    /** Everything that it started, too. */
    tree: z.boolean().default(true),
  }),
  /** So many bytes of output were taken. */
  z.strictObject({
    type: z.literal("credit"),
    bytes: z.number().int().min(1).max(attachLimits.windowBytesMax),
  }),
]);
export type AttachRequest = z.input<typeof attachRequestSchema>;

/** Text messages of the daemon. Nothing follows `exit`, `interrupted` or `error`. */
export const attachEventSchema = z.discriminatedUnion("type", [
  /** The first. */
  z.object({ type: z.literal("attached"), process: z.number().int(), offset: z.number().int() }),
  /** Bytes of output from `from` up to `to` are not kept any more. */
  z.object({ type: z.literal("cut"), from: z.number().int(), to: z.number().int() }),
  /** So many bytes of input were taken. */
  z.object({ type: z.literal("credit"), bytes: z.number().int() }),
  /** The program takes no more input; what is sent is dropped. */
  z.object({ type: z.literal("input-closed"), error: errorBodySchema }),
  z.object({ type: z.literal("done"), id: z.number().int() }),
  z.object({ type: z.literal("refused"), id: z.number().int(), error: errorBodySchema }),
  z.object({ type: z.literal("exit"), ...exitSchema.shape }),
  /** The agent slept, stopped or moved on, or the daemon ended; the process may go on. */
  z.object({ type: z.literal("interrupted"), reason: z.string(), offset: z.number().int() }),
  z.object({ type: z.literal("error"), error: errorBodySchema }),
]);
export type AttachEvent = z.infer<typeof attachEventSchema>;

/** A binary message of the daemon. */
export interface OutputMessage {
  readonly stream: "stdout" | "stderr";
  /** Of the first byte, counted over both streams together. */
  readonly offset: number;
  readonly bytes: Uint8Array;
}

const HEADER_BYTES = 9;
const channels = { stdout: 1, stderr: 2 } as const;

/** `channel u8` (1 stdout, 2 stderr), `offset u64` little endian, bytes. */
export function encodeOutput({ stream, offset, bytes }: OutputMessage): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(HEADER_BYTES + bytes.length);
  const header = new DataView(message.buffer);
  header.setUint8(0, channels[stream]);
  header.setBigUint64(1, BigInt(offset), true);
  message.set(bytes, HEADER_BYTES);
  return message;
}

/** Null where it is none. */
export function decodeOutput(message: Uint8Array): OutputMessage | null {
  if (message.length < HEADER_BYTES) return null;
  const header = new DataView(message.buffer, message.byteOffset, HEADER_BYTES);
  const channel = header.getUint8(0);
  const offset = Number(header.getBigUint64(1, true));
  if (!Number.isSafeInteger(offset)) return null;
  const stream =
    channel === channels.stdout ? "stdout" : channel === channels.stderr ? "stderr" : null;
  return stream === null ? null : { stream, offset, bytes: message.subarray(HEADER_BYTES) };
}
