/** For tests: the client's end of an attachment, message by message; the daemon's messages are held to their schema. */
import { connect } from "node:net";
import type { Socket } from "node:net";
import { attachEventSchema, decodeOutput } from "@perdure/protocol";
import type { AttachEvent, AttachRequest } from "@perdure/protocol";
import { WebSocket } from "ws";
import type { ClientOptions } from "ws";

export type AttachMessage =
  | AttachEvent
  | {
      readonly type: "output";
      readonly stream: string;
      readonly offset: number;
      readonly text: string;
    };

export interface AttachClient {
  readonly socket: WebSocket;
  readonly messages: AttachMessage[];
  send(message: AttachRequest | string | Uint8Array): void;
  /** The first message of this type, as soon as it is there. */
  next<T extends AttachMessage["type"]>(type: T): Promise<AttachMessage & { type: T }>;
  /** Resolves with the close code. */
  readonly closed: Promise<number>;
  /** All output so far. */
  output(): string;
}

/** Resolves when the WebSocket is open. @throws where the upgrade is refused */
export async function openAttachment(
  socketPath: string,
  path: string,
  { protocols = [], ...options }: ClientOptions & { protocols?: string[] } = {},
): Promise<AttachClient> {
  const socket = new WebSocket(`ws+unix:${socketPath}:${path}`, protocols, options);
  const messages: AttachMessage[] = [];
  let changed = Promise.withResolvers<undefined>();
  socket.on("message", (data: Buffer, isBinary) => {
    messages.push(isBinary ? outputOf(data) : attachEventSchema.parse(JSON.parse(data.toString())));
    changed.resolve(undefined);
    changed = Promise.withResolvers();
  });
  const closed = new Promise<number>((resolve) => {
    socket.once("close", (code) => {
      resolve(code);
      changed.resolve(undefined);
    });
  });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve).once("error", reject);
  });
  socket.on("error", () => undefined);
  const client: AttachClient = {
    socket,
    messages,
    closed,
    send: (message) => {
      const isJson = !(message instanceof Uint8Array) && typeof message !== "string";
      socket.send(isJson ? JSON.stringify(message) : message);
    },
    next: async (type) => {
      for (;;) {
        const found = messages.find((message) => message.type === type);
        if (found !== undefined) return found as never;
        if (socket.readyState === WebSocket.CLOSED) {
          throw new Error(`Closed without "${type}": ${JSON.stringify(messages.slice(-3))}`);
        }
        await changed.promise;
      }
    },
    output: () => messages.map((each) => (each.type === "output" ? each.text : "")).join(""),
  };
  return client;
}

function outputOf(data: Buffer): AttachMessage {
  const output = decodeOutput(data);
  if (output === null) throw new Error(`No output: ${data.toString("hex")}`);
  const { stream, offset, bytes } = output;
  return { type: "output", stream, offset, text: Buffer.from(bytes).toString() };
}

/** A connection that has become a WebSocket and of which nothing was read yet; frames are up to the test. */
export async function openRawAttachment(socketPath: string, path: string): Promise<Socket> {
  const socket = connect(socketPath);
  socket.on("error", () => undefined);
  socket.write(
    [
      `GET ${path} HTTP/1.1`,
      "host: perdure",
      "connection: upgrade",
      "upgrade: websocket",
      "sec-websocket-version: 13",
      "sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==",
      "\r\n",
    ].join("\r\n"),
  );
  await new Promise((resolve) => socket.once("readable", resolve));
  return socket;
}
