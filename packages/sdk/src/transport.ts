/**
 * HTTP to the daemon, over its unix socket or a URL. Every failure leaves as a `PerdureError`; nothing
 * is sent twice. No answer has a deadline here: a create may build a template for minutes.
 */
import { Readable } from "node:stream";
import { errorBodySchema, PerdureError } from "@perdure/protocol";
import { Pool } from "undici";
import type { Dispatcher } from "undici";
import type { z } from "zod";
import { checkSocketPath } from "./paths.ts";

/** What every call takes besides its own arguments. */
export interface CallOptions {
  /** Ends the waiting, with `cancelled`. What the daemon already does goes on. */
  readonly signal?: AbortSignal | undefined;
}

export interface Call extends CallOptions {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. */
  readonly body?: Uint8Array | AsyncIterable<Uint8Array>;
  readonly size?: number;
}

export interface Transport {
  /** The answer's JSON, checked. */
  json<S extends z.ZodType>(schema: S, call: Call): Promise<z.output<S>>;
  /** An answer without a body. */
  empty(call: Call): Promise<void>;
  /** Headers and the body as it comes; errors while reading it are rewritten too. */
  stream(call: Call): Promise<StreamedAnswer>;
  close(): Promise<void>;
}

export interface StreamedAnswer {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly bytes: AsyncIterable<Uint8Array>;
}

export type Endpoint = { readonly socketPath: string } | { readonly url: string };

export function createTransport(endpoint: Endpoint): Transport {
  const name = "url" in endpoint ? endpoint.url : endpoint.socketPath;
  const pool = new Pool("url" in endpoint ? endpoint.url : "http://perdure", {
    ...("url" in endpoint ? {} : { socketPath: endpoint.socketPath }),
    headersTimeout: 0,
    bodyTimeout: 0,
  });

  const send = async (call: Call): Promise<Dispatcher.ResponseData> => {
    try {
      if ("socketPath" in endpoint) checkSocketPath(endpoint.socketPath);
      const answer = await pool.request({
        method: call.method,
        path: call.path,
        ...(call.query === undefined ? {} : { query: defined(call.query) }),
        headers: headersOf(call),
        body: bodyOf(call),
        ...(call.signal === undefined ? {} : { signal: call.signal }),
      });
      if (answer.statusCode < 400) return answer;
      throw errorOf(answer.statusCode, await answer.body.text());
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

  return {
    json: async (schema, call) => {
      const result = schema.safeParse(parseJson(await text(call)));
      if (result.success) return result.data;
      throw new PerdureError(
        "internal",
        `Cannot read the daemon's answer to ${call.method} ${call.path}: ${result.error.message}`,
        { hint: "Use the client and the daemon of one release." },
      );
    },
    empty: async (call) => {
      await text(call);
    },
    stream: async (call) => {
      const { headers, body } = await send(call);
      return { headers, bytes: rewriteErrors(body, name) };
    },
    close: () => pool.destroy(),
  };
}

function bodyOf({ json, body }: Call): string | Uint8Array | Readable | null {
  if (json !== undefined) return JSON.stringify(json);
  if (body === undefined || body instanceof Uint8Array) return body ?? null;
  return Readable.from(body, { objectMode: false });
}

function headersOf({ json, body, size }: Call): Record<string, string> {
  if (json !== undefined) return { "content-type": "application/json" };
  if (body === undefined) return {};
  const type = { "content-type": "application/octet-stream" };
  return size === undefined ? type : { ...type, "content-length": String(size) };
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

function defined(query: NonNullable<Call["query"]>): Record<string, string | number | boolean> {
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

function errorOf(status: number, text: string): PerdureError {
  const body = errorBodySchema.safeParse(parseJson(text));
  if (body.success) return PerdureError.fromBody(body.data);
  return new PerdureError("internal", `The daemon answered ${status} with no error that is known`, {
    hint: "Use the client and the daemon of one release.",
    details: { status },
  });
}

const unreachable = new Set([
  ...["ECONNREFUSED", "ENOENT", "ENOTDIR", "EACCES", "EPERM", "ELOOP"],
  ...["ENOTFOUND", "ENOTSOCK", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"],
]);

function transportError(error: unknown, name: string): PerdureError {
  if (error instanceof PerdureError) return error;
  const { code, name: kind, message } = error as { code?: string; name?: string; message?: string };
  if (kind === "AbortError" || kind === "TimeoutError") {
    return new PerdureError("cancelled", "The call was cancelled by its caller", { cause: error });
  }
  if ((code !== undefined && unreachable.has(code)) || code === "UND_ERR_CONNECT_TIMEOUT") {
    return new PerdureError("daemon_unreachable", `Cannot reach a daemon on "${name}": ${code}`, {
      hint:
        code === "EACCES"
          ? "Run as the user whose daemon it is."
          : "Start it with `perdure daemon`, or set PERDURE_SOCKET to where it listens.",
      cause: error,
    });
  }
  if (code === "UND_ERR_REQ_CONTENT_LENGTH_MISMATCH") {
    return new PerdureError("size_mismatch", "The body does not have the size that was announced", {
      cause: error,
    });
  }
  const reason = message ?? String(error);
  return new PerdureError("interrupted", `The connection to "${name}" ended early: ${reason}`, {
    hint: "Look at the agent before you send the call again.",
    cause: error,
  });
}
