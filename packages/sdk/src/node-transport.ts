/**
 * HTTP to the daemon, over its unix socket or a URL. No answer has a deadline here: a create may build a
 * template for minutes.
 */
import { Readable } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import { Pool, WebSocket } from "undici";
import type { Dispatcher } from "undici";
import { openSocket, whyNotOpen } from "./message-socket.ts";
import type { WebSocketLike } from "./message-socket.ts";
import { checkSocketPath } from "./paths.ts";
import { repeated } from "./repeat.ts";
import {
  answeredError,
  cancelledError,
  closedError,
  cutError,
  definedQuery,
  queryPairs,
  headersOf,
  parseAnswer,
} from "./transport.ts";
import type { Call, Transport } from "./transport.ts";

export type Endpoint = ({ readonly socketPath: string } | { readonly url: string }) & {
  readonly apiKey?: string;
};

export function createNodeTransport(endpoint: Endpoint): Transport {
  const name = "url" in endpoint ? endpoint.url : endpoint.socketPath;
  const pool = new Pool("url" in endpoint ? endpoint.url : "http://perdure", {
    ...("url" in endpoint ? {} : { socketPath: endpoint.socketPath }),
    headersTimeout: 0,
    bodyTimeout: 0,
  });

  let closed = false;
  const sockets = new Set<WebSocketLike>();
  const send = async (call: Call): Promise<Dispatcher.ResponseData> => {
    if (closed) throw closedError();
    try {
      if ("socketPath" in endpoint) checkSocketPath(endpoint.socketPath);
      const answer = await pool.request({
        method: call.method,
        path: call.path,
        query: definedQuery(call),
        headers: { ...headersOf(call, endpoint.apiKey), ...lengthOf(call) },
        body: bodyOf(call),
        ...(call.signal === undefined ? {} : { signal: call.signal }),
      });
      if (answer.statusCode < 400) return answer;
      throw answeredError(answer.statusCode, await answer.body.text());
    } catch (error) {
      throw transportError(error, name);
    }
  };
  const text = async (call: Call): Promise<string> => {
    const { body } = await send(call);
    try {
      return await body.text();
    } catch (error) {
      throw transportError(error, name);
    }
  };

  return repeated({
    json: async (schema, call) => parseAnswer(schema, call, await text(call)),
    empty: async (call) => {
      await text(call);
    },
    stream: async (call) => {
      const { headers, body } = await send(call);
      return { headers, bytes: rewriteErrors(body, name) };
    },
    socket: async ({ path, query, protocol, signal }, events) => {
      if (closed) throw closedError();
      const url = new URL(path, "url" in endpoint ? endpoint.url : "http://perdure");
      for (const [key, value] of queryPairs({ query })) url.searchParams.append(key, value);
      url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
      const socket = new WebSocket(url, {
        protocols: [protocol],
        dispatcher: pool,
        headers: headersOf({}, endpoint.apiKey),
      });
      sockets.add(socket);
      const opened = await openSocket(
        socket,
        {
          ...events,
          closed: () => {
            sockets.delete(socket);
            events.closed();
          },
        },
        signal,
      );
      if (opened !== null) return opened;
      sockets.delete(socket);
      throw await whyNotOpen(name, text({ method: "GET", path, query, signal }));
    },
    close: () => {
      closed = true;
      for (const socket of sockets) socket.close();
      return pool.destroy();
    },
  });
}

function bodyOf({ json, body }: Call): string | Uint8Array | Readable | null {
  if (json !== undefined) return JSON.stringify(json);
  if (body === undefined || body instanceof Uint8Array) return body ?? null;
  return Readable.from(body instanceof Blob ? body.stream() : body, { objectMode: false });
}

/** Of a body whose length cannot be seen. */
function lengthOf({ body, size }: Call): Record<string, string> {
  const length = body instanceof Blob ? body.size : size;
  return length === undefined ? {} : { "content-length": String(length) };
}

async function* rewriteErrors(
  body: AsyncIterable<Uint8Array>,
  name: string,
): AsyncGenerator<Uint8Array> {
  try {
    yield* body;
  } catch (error) {
    throw transportError(error, name);
  }
}

const unreachable = new Set([
  ...["ECONNREFUSED", "ENOENT", "ENOTDIR", "EACCES", "EPERM", "ELOOP"],
  ...["ENOTFOUND", "ENOTSOCK", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"],
]);

/** Of its certificate. Nothing was sent. */
const notTrusted = new Set([
  ...["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "CERT_HAS_EXPIRED"],
  ...["UNABLE_TO_VERIFY_LEAF_SIGNATURE", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"],
  "ERR_TLS_CERT_ALTNAME_INVALID",
]);

function reachHint(code: string, name: string): string {
  if (name.includes("://")) return "Start it there with `perdure serve --listen`.";
  return code === "EACCES"
    ? "Run as the user whose daemon it is."
    : "Start it with `perdure daemon start`, or set PERDURE_SOCKET to where it listens.";
}

function transportError(error: unknown, name: string): PerdureError {
  if (error instanceof PerdureError) return error;
  const { code, name: kind, message } = error as { code?: string; name?: string; message?: string };
  if (kind === "AbortError" || kind === "TimeoutError") return cancelledError(error);
  if ((code !== undefined && unreachable.has(code)) || code === "UND_ERR_CONNECT_TIMEOUT") {
    return new PerdureError("daemon_unreachable", `Cannot reach a daemon on "${name}": ${code}`, {
      hint: reachHint(code, name),
      cause: error,
    });
  }
  if (code !== undefined && notTrusted.has(code)) {
    return new PerdureError("daemon_unreachable", `Cannot trust the daemon on "${name}": ${code}`, {
      hint: "Name the certificate of whoever signed its own in NODE_EXTRA_CA_CERTS.",
      cause: error,
    });
  }
  if (code === "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH") {
    return new PerdureError("size_mismatch", "The body does not have the size that was announced", {
      cause: error,
    });
  }
  return cutError(name, message ?? String(error), error);
}
