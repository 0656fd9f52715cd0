/**
 * HTTP to the daemon by `fetch`, for browsers. They tell nothing of why a call failed, and send no stream:
 * a body that comes piece by piece is collected first.
 */
import { keyProtocol, PerdureError } from "@perdure/protocol";
import { openSocket, whyNotOpen } from "./message-socket.ts";
import { repeated } from "./repeat.ts";
import {
  answeredError,
  cancelledError,
  closedError,
  cutError,
  queryPairs,
  headersOf,
  parseAnswer,
} from "./transport.ts";
import type { Call, Transport } from "./transport.ts";

export interface FetchEndpoint {
  readonly url: string;
  readonly apiKey?: string;
}

export function createFetchTransport({ url, apiKey }: FetchEndpoint): Transport {
  const base = url.replace(/\/+$/, "");
  const closing = new AbortController();

  const send = async (call: Call): Promise<Response> => {
    if (closing.signal.aborted) throw closedError();
    const body = await bodyOf(call);
    const signal = signalOf(call, closing.signal);
    let answer: Response;
    try {
      answer = await fetch(`${base}${call.path}?${searchOf(call)}`, {
        method: call.method,
        headers: headersOf(call, apiKey),
        ...(body === undefined ? {} : { body }),
        signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
    } catch (error) {
      throw call.signal?.aborted === true ? cancelledError(error) : noAnswer(call, url, error);
    }
    if (answer.status < 400) return answer;
    throw answeredError(answer.status, await reading(call, answer.text()));
  };
  const reading = async <T>(call: Call, work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (error) {
      throw call.signal?.aborted === true
        ? cancelledError(error)
        : cutError(url, said(error), error);
    }
  };

  return repeated({
    json: async (schema, call) => {
      const answer = await send(call);
      return parseAnswer(schema, call, await reading(call, answer.text()));
    },
    empty: async (call) => {
      const answer = await send(call);
      await reading(call, answer.text());
    },
    stream: async (call) => {
      const answer = await send(call);
      const bytes = bytesOf(answer, (work) => reading(call, work));
      return { headers: Object.fromEntries(answer.headers), bytes };
    },
    socket: async ({ path, query, protocol, signal }, events) => {
      if (closing.signal.aborted) throw closedError();
      const text = searchOf({ query });
      // A browser's WebSocket sends no headers.
      const protocols = [protocol, ...(apiKey === undefined ? [] : [keyProtocol(apiKey)])];
      const socket = new WebSocket(`${base.replace(/^http/, "ws")}${path}?${text}`, protocols);
      const end = (): void => socket.close();
      closing.signal.addEventListener("abort", end);
      const closed = (): void => {
        closing.signal.removeEventListener("abort", end);
        events.closed();
      };
      const opened = await openSocket(socket, { ...events, closed }, signal);
      if (opened !== null) return opened;
      closing.signal.removeEventListener("abort", end);
      throw await whyNotOpen(url, send({ method: "GET", path, query, signal }));
    },
    close: () => {
      closing.abort();
      return Promise.resolve();
    },
  });
}

function searchOf(call: Pick<Call, "query">): string {
  return new URLSearchParams(queryPairs(call)).toString();
}

async function bodyOf({ json, body, size }: Call): Promise<string | Blob | undefined> {
  if (json !== undefined) return JSON.stringify(json);
  if (body === undefined || body instanceof Blob) return body;
  const collected = await collectBlob(body instanceof Uint8Array ? [body] : body, size ?? Infinity);
  if (size === undefined || collected.size === size) return collected;
  throw new PerdureError("size_mismatch", "The body does not have the size that was announced");
}

/** What is put into a blob early a browser may keep on its disk. */
const BLOB_BYTES = 8 * 1024 * 1024;

/** Stops once there is more than `sizeMax`. */
async function collectBlob(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  sizeMax: number,
): Promise<Blob> {
  const blobs: Blob[] = [];
  let pending: Uint8Array<ArrayBuffer>[] = [];
  let pendingBytes = 0;
  let size = 0;
  for await (const chunk of chunks) {
    pending.push(new Uint8Array(chunk));
    pendingBytes += chunk.length;
    size += chunk.length;
    if (size > sizeMax) break;
    if (pendingBytes < BLOB_BYTES) continue;
    blobs.push(new Blob(pending));
    pending = [];
    pendingBytes = 0;
  }
  return new Blob([...blobs, ...pending]);
}

function signalOf({ signal }: Call, closing: AbortSignal): AbortSignal {
  return signal === undefined ? closing : AbortSignal.any([signal, closing]);
}

/**
 * Not an async iteration of the stream itself: not every browser has it. The answer is held as long as its
 * stream: Node's `fetch` drops what was not read of an answer that nobody has any more.
 */
async function* bytesOf(
  answer: Response,
  reading: <T>(work: Promise<T>) => Promise<T>,
): AsyncGenerator<Uint8Array> {
  const body: ReadableStream<Uint8Array> | null = answer.body;
  const reader = body?.getReader();
  if (reader === undefined) return;
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reading(reader.read());
      ended = done;
      if (done) return;
      yield value;
    }
  } catch (error) {
    ended = true;
    throw error;
  } finally {
    if (!ended) await reader.cancel().catch(() => undefined);
  }
}

/** Whether a call that only reads arrived does not matter; of any other it is not known. */
function noAnswer({ method }: Call, url: string, error: unknown): PerdureError {
  if (method !== "GET") return cutError(url, said(error), error);
  return new PerdureError("daemon_unreachable", `Cannot reach a daemon on "${url}"`, {
    hint: "Is it running there, and does it allow calls from this page's origin?",
    cause: error,
  });
}

function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
