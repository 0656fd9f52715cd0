/** Sends drawn requests, and looks at what comes back. */
import { request as httpRequest } from "node:http";
import type { IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { Socket } from "node:net";
import { WebSocket } from "ws";
import { attachEventSchema, ATTACH_PROTOCOL } from "@perdure/protocol";
import { violations } from "../../contract/api/conformance.ts";
import type { ApiWorld } from "./api-world.ts";
import { SOME_AGENT } from "./drawn-request.ts";
import type { DrawnRequest } from "./drawn-request.ts";

/** How long an answer that is a stream is read. */
const READ_MS = 30;
/** Nothing is ever that late: an answer that does not come is a defect. */
const ANSWER_MS = 120_000;

/** @returns what is wrong with the answer; nothing where all is right */
export async function sendDrawn(api: ApiWorld, drawn: DrawnRequest): Promise<string[]> {
  const request = { ...drawn, url: drawn.url.replaceAll(SOME_AGENT, await someAgent(api)) };
  switch (request.how) {
    case "raw":
      return sendRaw(api, request);
    case "socket":
      return sendSocket(api, request);
    case "half":
    case "abort":
      return sendBroken(api, request);
    case "whole":
      return sendWhole(api, request);
  }
}

async function someAgent({ world }: ApiWorld): Promise<string> {
  const agents = await world.state.allAgents();
  return agents.find(({ state }) => state !== "removed")?.id ?? `ag_${"0".repeat(26)}`;
}

interface Target {
  readonly socketPath?: string;
  readonly host?: string;
  readonly port?: number;
}

function targetOf(api: ApiWorld, { door }: DrawnRequest): Target {
  if (door === "socket") return { socketPath: api.socketPath };
  const { hostname, port } = new URL(api.server.url ?? "");
  return { host: hostname, port: Number(port) };
}

function headersOf(api: ApiWorld, { headers, door }: DrawnRequest): Record<string, string> {
  const token = api.tokens.get(door);
  const sent = Object.entries(headers).map(([key, value]) => [
    key,
    Buffer.from(value).toString("latin1"),
  ]);
  return {
    ...(Object.fromEntries(sent) as Record<string, string>),
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
}

function sendWhole(api: ApiWorld, request: DrawnRequest): Promise<string[]> {
  const { method, url, body } = request;
  return new Promise((resolve) => {
    const told = (words: string): void => resolve([`${method} ${url}: ${words}`]);
    const timer = setTimeout(() => told("there is no answer"), ANSWER_MS);
    const done = (found: string[]): void => {
      clearTimeout(timer);
      resolve(found);
    };
    const options = { ...targetOf(api, request), method, path: url, agent: false };
    const length = body === null ? {} : { "content-length": body.length };
    const sent = httpRequest({ ...options, headers: { ...headersOf(api, request), ...length } });
    // Who is refused before the body was read may find the connection closed.
    sent.once("error", () => done([]));
    sent.once("upgrade", (response, socket) => {
      socket.destroy();
      done(judge(request, response, null));
    });
    sent.once("response", (response) => {
      void readFor(response, READ_MS).then((text) => {
        sent.destroy();
        done(judge(request, response, text));
      });
    });
    sent.end(body ?? undefined);
  });
}

/** What came until the end, or for so long; null where that was not all of it. */
function readFor(response: IncomingMessage, ms: number): Promise<string | null> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const isStream = /ndjson|event-stream/.test(response.headers["content-type"] ?? "");
    const text = (): string => Buffer.concat(chunks).toString();
    const timer = setTimeout(() => resolve(isStream ? text() : null), ms);
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.once("end", () => {
      clearTimeout(timer);
      resolve(text());
    });
    response.once("error", () => resolve(null));
  });
}

function judge(
  { method, url, body }: DrawnRequest,
  { statusCode: status = 0, headers }: IncomingMessage,
  text: string | null,
): string[] {
  // What a HEAD would have as its body is not sent.
  if (method === "HEAD") return status < 500 ? [] : [`HEAD ${url}: ${status}`];
  // The body of a GET means nothing (RFC 9110, 9.3.1), and is not read.
  // A byte order mark may be ignored (RFC 8259, 8.1).
  const requestBody = method === "GET" ? "" : (body?.toString().replace(/^\ufeff/, "") ?? "");
  return violations({ method, url, requestBody, status, headers, body: text }).map(
    (words) => `${words} — asked ${url} ${requestBody.slice(0, 300)}`,
  );
}

function connectTo({ socketPath, host, port }: Target): Socket {
  return socketPath === undefined
    ? connect({ host: host ?? "", port: port ?? 0 })
    : connect({ path: socketPath });
}

/** Sends less than is announced, or all, and goes away. */
async function sendBroken(api: ApiWorld, request: DrawnRequest): Promise<string[]> {
  const { method, url, how } = request;
  const body = request.body ?? Buffer.from("{}");
  const cut = how === "half" ? body.length >> 1 : body.length;
  const head = Object.entries(headersOf(api, request)).map(([key, value]) => `${key}: ${value}`);
  const text = [`${method} ${url} HTTP/1.1`, "host: x", `content-length: ${body.length}`, ...head];
  const socket = connectTo(targetOf(api, request));
  await new Promise<void>((resolve) => {
    socket.once("error", () => resolve());
    socket.once("close", () => resolve());
    const bytes = Buffer.concat([
      Buffer.from(`${text.join("\r\n")}\r\n\r\n`, "latin1"),
      body.subarray(0, cut),
    ]);
    socket.write(bytes, () => {
      // One ends in order, the other is reset; some while the request is under way.
      if (body.length % 3 === 0) socket.end();
      else setTimeout(() => socket.destroy(), body.length % 7);
    });
    socket.resume();
    setTimeout(() => socket.destroy(), READ_MS);
  });
  return [];
}

/** Whatever is sent, what comes back is HTTP/1.1 and no defect. */
async function sendRaw(api: ApiWorld, request: DrawnRequest): Promise<string[]> {
  const { body } = request;
  const socket = connectTo(targetOf(api, request));
  const chunks: Buffer[] = [];
  await new Promise<void>((resolve) => {
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.once("error", () => resolve());
    socket.once("close", () => resolve());
    socket.write(body ?? "");
    setTimeout(() => socket.destroy(), READ_MS);
  });
  const text = Buffer.concat(chunks).toString();
  if (text === "" || /^HTTP\/1\.1 [1-4]/.test(text)) return [];
  return [`${JSON.stringify(String(body).slice(0, 100))} was answered ${text.slice(0, 300)}`];
}

/** Attaches, says things that are messages and things that are none, and goes away. */
async function sendSocket(api: ApiWorld, request: DrawnRequest): Promise<string[]> {
  const { url, body, door } = request;
  const base =
    door === "socket" ? `ws+unix:${api.socketPath}:` : (api.server.url ?? "").replace("http", "ws");
  const found: string[] = [];
  let socket: WebSocket;
  try {
    const { connection: _, upgrade: __, ...headers } = headersOf(api, request);
    socket = new WebSocket(base + url, [ATTACH_PROTOCOL], { headers });
  } catch {
    // What no client can be made to send.
    return [];
  }
  await new Promise<void>((resolve) => {
    socket.on("error", () => undefined);
    socket.once("unexpected-response", (_request, response: IncomingMessage) => {
      void readFor(response, READ_MS).then((text) => {
        found.push(...judge({ ...request, method: "GET", body: null }, response, text));
        response.destroy();
        socket.terminate();
        resolve();
      });
    });
    socket.on("message", (data: Buffer, isBinary) => {
      if (isBinary) return;
      const parsed = attachEventSchema.safeParse(JSON.parse(data.toString()));
      if (!parsed.success) found.push(`attach said ${data.toString().slice(0, 300)}`);
    });
    socket.once("open", () => {
      const messages = [
        ...['{"type":"stdin","data":"aGk="}', '{"type":"signal","signal":15}', '{"type":"window"}'],
        ...['{"type":"resize","rows":1,"columns":1}', "{", "null", "[]", "x".repeat(70_000)],
      ];
      const at = (body?.length ?? url.length) % messages.length;
      socket.send(messages[at] ?? "");
      socket.send(body ?? Buffer.alloc(at), { binary: at % 2 === 0 });
      setTimeout(() => (at % 3 === 0 ? socket.close() : socket.terminate()), at);
    });
    socket.once("close", () => resolve());
    setTimeout(() => socket.terminate(), ANSWER_MS / 10).unref();
  });
  return found;
}
