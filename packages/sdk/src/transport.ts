/** What carries calls to a daemon, and how an answer is read whatever carried it. */
import { errorBodySchema, PerdureError } from "@perdure/protocol";
import type { z } from "zod";

export type QueryValue = string | number | boolean | string[];

/** What every call takes besides its own arguments. */
export interface CallOptions {
  /** Ends the waiting, with `cancelled`. What the daemon already does goes on. */
  readonly signal?: AbortSignal | undefined;
}

export interface Call extends CallOptions {
  readonly method: "DELETE" | "GET" | "PATCH" | "POST" | "PUT";
  readonly path: string;
  readonly query?: Readonly<Record<string, QueryValue | undefined>>;
  /** Besides those that say what is sent, and who sends it. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. */
  readonly body?: Uint8Array | AsyncIterable<Uint8Array> | Blob;
  /** Of an iterable body, in bytes. */
  readonly size?: number;
  /** Changes something: sent with an idempotency key; see repeat.ts. */
  readonly once?: boolean;
  /** The idempotency key. */
  readonly key?: string;
}

/** Every failure leaves as a `PerdureError`. */
export interface Transport {
  /** The answer's JSON, checked. */
  json<S extends z.ZodType>(schema: S, call: Call): Promise<z.output<S>>;
  /** An answer without a body. */
  empty(call: Call): Promise<void>;
  /** Headers and the body as it comes; errors while reading it are rewritten too. */
  stream(call: Call): Promise<StreamedAnswer>;
  /** A WebSocket, open. */
  socket(call: SocketCall, events: SocketEvents): Promise<MessageSocket>;
  close(): Promise<void>;
}

export interface SocketCall extends CallOptions {
  readonly path: string;
  readonly query: NonNullable<Call["query"]>;
  /** Its subprotocol. */
  readonly protocol: string;
}

export interface SocketEvents {
  readonly text: (message: string) => void;
  readonly bytes: (message: Uint8Array) => void;
  /** Once, and nothing after it. */
  readonly closed: () => void;
}

/** Sends nothing once it is closed. */
export interface MessageSocket {
  send(message: string | Uint8Array): void;
  close(): void;
}

export interface StreamedAnswer {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** @throws `internal` where the answer's text is not what `schema` says */
export function parseAnswer<S extends z.ZodType>(schema: S, call: Call, text: string): z.output<S> {
  const result = schema.safeParse(parseJson(text));
  if (result.success) return result.data;
  throw new PerdureError(
    "internal",
    `Cannot read the daemon's answer to ${call.method} ${call.path}: ${result.error.message}`,
    { hint: "Use the client and the daemon of one release." },
  );
}

/** The error that an answer with a status of 400 or above is. */
export function answeredError(status: number, text: string): PerdureError {
  const body = errorBodySchema.safeParse(parseJson(text));
  if (body.success) return PerdureError.fromBody(body.data);
  return new PerdureError("internal", `The daemon answered ${status} with no error that is known`, {
    hint: "Use the client and the daemon of one release.",
    details: { status },
  });
}

export function cancelledError(cause: unknown): PerdureError {
  return new PerdureError("cancelled", "The call was cancelled by its caller", { cause });
}

/** Nothing is sent by a client that was closed. */
export function closedError(): PerdureError {
  return new PerdureError("cancelled", "The client is closed", { hint: "Open another one." });
}

/** The connection ended before the answer did. */
export function cutError(name: string, reason: string, cause: unknown): PerdureError {
  return new PerdureError("interrupted", `The connection to "${name}" ended early: ${reason}`, {
    hint: "Look at the agent before you send the call again.",
    cause,
  });
}

/** Headers that say what is sent, and who sends it. */
export function headersOf({ json, body, key, headers }: Partial<Call>, apiKey: string | undefined) {
  const type =
    json !== undefined
      ? "application/json"
      : body === undefined
        ? null
        : "application/octet-stream";
  return {
    ...headers,
    ...(type === null ? {} : { "content-type": type }),
    ...(key === undefined ? {} : { "idempotency-key": `"${key}"` }),
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
}

/** As pairs: what has several values is in it so often. */
export function queryPairs(call: Pick<Call, "query">): [string, string][] {
  return Object.entries(definedQuery(call)).flatMap(([key, value]) =>
    (Array.isArray(value) ? value : [value]).map((one): [string, string] => [key, String(one)]),
  );
}

/** Fields of the query that have a value. */
export function definedQuery({ query = {} }: Pick<Call, "query">): Record<string, QueryValue> {
  return Object.fromEntries(
    Object.entries(query).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
