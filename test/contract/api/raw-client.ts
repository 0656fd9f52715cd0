/** For tests: plain HTTP to a daemon's socket; all that is sent and answered is held to the OpenAPI document. */
import { request as httpRequest } from "node:http";
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { expect } from "vitest";
import { errorBodySchema, errorTable } from "@perdure/protocol";
import { violations } from "./conformance.ts";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly bytes: Buffer;
  json(): unknown;
  /** Of newline-delimited JSON. */
  lines(): Record<string, unknown>[];
}

export interface Sent {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

export interface RawClient {
  /** As soon as the headers are there. */
  open(method: string, path: string, sent?: Sent): Promise<IncomingMessage>;
  send(method: string, path: string, sent?: Sent): Promise<Answer>;
  post(path: string, body: unknown): Promise<Answer>;
  /** The code of the error that it must answer, with the status of that code. */
  refused(method: string, path: string, sent?: Sent): Promise<string>;
}

export function createRawClient(socketPath: string): RawClient {
  const client: RawClient = {
    open: (method, path, { headers = {}, body } = {}) =>
      new Promise((resolve, reject) => {
        const request = httpRequest({ socketPath, method, path, headers }, resolve);
        request.once("error", reject);
        request.end(body);
      }),
    send: async (method, path, sent = {}) => {
      const response = await client.open(method, path, sent);
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const bytes = Buffer.concat(chunks);
      const { statusCode: status = 0, headers } = response;
      const text = bytes.toString();
      const requestBody = String(sent.body ?? "");
      const found = violations({ method, url: path, requestBody, status, headers, body: text });
      expect(found).toEqual([]);
      const json = (line: string): unknown => JSON.parse(line);
      return {
        status,
        headers,
        text,
        bytes,
        json: () => json(text),
        lines: () => text.trim().split("\n").map(json) as Record<string, unknown>[],
      };
    },
    post: (path, body) =>
      client.send("POST", path, {
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      }),
    refused: async (method, path, sent = {}) => {
      const answer = await client.send(method, path, sent);
      const { code } = errorBodySchema.parse(answer.json());
      expect(answer.status).toBe(errorTable[code].status);
      return code;
    },
  };
  return client;
}
