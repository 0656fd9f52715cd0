/** Every error leaves as an `ErrorBody` with the status of its code, whoever raised it. */
import type { ServerResponse } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { apiLimits, PerdureError } from "@perdure/protocol";

/** Ours as it is; Fastify's own refusals by what they mean; anything else is a defect: `internal`. */
export function toPerdureError(error: unknown): PerdureError {
  if (error instanceof PerdureError) return error;
  const { code, statusCode, message } = facts(error);
  switch (code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new PerdureError(
        "too_large",
        `Cannot take the body: it has more than ${apiLimits.bodyBytesMax} bytes`,
      );
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new PerdureError("bad_request", "Cannot read the body: its media type is not JSON", {
        hint: 'Send "content-type: application/json".',
        details: { field: "headers.content-type" },
      });
    case "FST_ERR_CTP_INVALID_JSON_BODY":
      return new PerdureError("bad_request", "Cannot read the body: it is not JSON", {
        details: { field: "body" },
      });
    case "ECONNRESET":
    case "ABORT_ERR":
      return new PerdureError("cancelled", "The caller went away", { cause: error });
    default:
  }
  if (typeof statusCode === "number" && statusCode >= 400 && statusCode < 500) {
    return new PerdureError("bad_request", `Cannot read the request: ${message}`, { cause: error });
  }
  return new PerdureError("internal", "Cannot answer the request: a defect in the daemon", {
    hint: "The daemon's log has the details.",
    cause: error,
  });
}

export function sendError(reply: FastifyReply, error: PerdureError): void {
  const { retryAfterMs } = error.details;
  if (error.code === "unauthenticated") void reply.header("www-authenticate", "Bearer");
  if (typeof retryAfterMs === "number") {
    void reply.header("retry-after", Math.ceil(retryAfterMs / 1000));
  }
  void reply.code(error.status).type("application/json").send(JSON.stringify(error));
}

export function sendNotFound(request: FastifyRequest, reply: FastifyReply): void {
  const path = request.url.split("?")[0]?.slice(0, 200) ?? "";
  sendError(reply, new PerdureError("not_found", `There is no route ${request.method} ${path}`));
}

/** The answer to bytes that are no HTTP request, written to the socket itself. */
export function rawErrorAnswer(error: { readonly code?: string }): string {
  const answer =
    error.code === "HPE_HEADER_OVERFLOW"
      ? new PerdureError("too_large", "Cannot read the request: its headers are too large")
      : new PerdureError("bad_request", "Cannot read the request: it is not HTTP/1.1");
  const body = JSON.stringify(answer);
  return [
    `HTTP/1.1 ${answer.status} Refused`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
    "",
    body,
  ].join("\r\n");
}

/** Of `expect:`, in a request of which nothing else was looked at. */
export function refuseExpectation(response: ServerResponse): void {
  const error = new PerdureError(
    "bad_request",
    'Cannot do what the request expects: only "100-continue" is known',
    { details: { field: "headers.expect" } },
  );
  const headers = { "content-type": "application/json", connection: "close" };
  response.writeHead(error.status, headers).end(JSON.stringify(error));
}

function facts(error: unknown): { code?: unknown; statusCode?: unknown; message: string } {
  return error instanceof Error ? error : { message: String(error) };
}
