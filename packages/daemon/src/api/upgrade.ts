/**
 * WebSockets through the same routes, hooks and errors as every other request: an upgrade is routed as the GET
 * that it is, and whoever serves it either answers, or takes the socket.
 */
import { ServerResponse } from "node:http";
import type { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { FastifyInstance } from "fastify";
import { ATTACH_PROTOCOL, attachLimits, CONNECT_PROTOCOL, PerdureError } from "@perdure/protocol";
import { WebSocketServer } from "ws";
import type { WebSocket } from "ws";

/** A connection that may become a WebSocket, and what came behind the request. */
export interface Upgrade {
  readonly socket: Socket;
  readonly head: Buffer;
}

interface Pending extends Upgrade {
  readonly response: ServerResponse;
}

export interface Upgrades {
  /** Makes a WebSocket of the request's connection. @throws `bad_request` where it does not ask for one */
  accept(request: IncomingMessage): Promise<WebSocket>;
  /** Cuts every one. */
  terminate(): void;
}

/** For the `http` options of the server: other upgrades (h2c of curl) are no business of ours. */
export function isWebSocket(request: IncomingMessage): boolean {
  return request.headers.upgrade?.toLowerCase() === "websocket";
}

/** Every server of Node's has these. */
export function asSocket(duplex: Duplex): Socket {
  if (!(duplex instanceof Socket)) throw new TypeError("An upgrade of what is no socket");
  return duplex;
}

/** To answer as any other request is. Whoever takes the socket detaches it before. */
export function responseOn(request: IncomingMessage, socket: Socket): ServerResponse {
  // Until it is a WebSocket nobody else listens.
  socket.on("error", () => socket.destroy());
  const response = new ServerResponse(request);
  // What came behind the request is not read by anyone any more.
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  // Nobody reads it any more, so its end would never be seen: it is ended from here, once all is written.
  response.once("finish", () => socket.destroySoon());
  return response;
}

export function acceptUpgrades(server: FastifyInstance): Upgrades {
  const pending = new WeakMap<IncomingMessage, Pending>();
  const sockets = new WebSocketServer({
    noServer: true,
    clientTracking: true,
    maxPayload: attachLimits.messageBytesMax,
    perMessageDeflate: false,
    // A key that was sent as a subprotocol is not said again.
    handleProtocols: (offered) =>
      [ATTACH_PROTOCOL, CONNECT_PROTOCOL].find((name) => offered.has(name)) ?? false,
  });

  const refused = new WeakMap<IncomingMessage, (error: Error) => void>();
  // Its own answer would be no `ErrorBody`.
  sockets.on("wsClientError", (error, _socket, request) => refused.get(request)?.(error));

  server.server.on("upgrade", (request: IncomingMessage, duplex: Duplex, head: Buffer) => {
    const socket = asSocket(duplex);
    const response = responseOn(request, socket);
    pending.set(request, { socket, head, response });
    server.routing(request, response);
  });

  return {
    accept: (request) => {
      const found = pending.get(request);
      if (found === undefined) {
        const message = "Cannot attach: the request does not ask for a WebSocket";
        const hint =
          'Send "connection: upgrade" and "upgrade: websocket"; or read …/output instead.';
        const details = { upgrade: "websocket" };
        return Promise.reject(new PerdureError("bad_request", message, { hint, details }));
      }
      const { socket, head, response } = found;
      response.detachSocket(socket);
      return new Promise((resolve, reject) => {
        refused.set(request, ({ message: reason }) => {
          // Answered like any other request that is wrong.
          response.assignSocket(socket);
          reject(new PerdureError("bad_request", `Cannot attach: ${reason}`));
        });
        // Of a socket that is gone already nothing is said at all.
        const gone = (): void =>
          reject(new PerdureError("cancelled", "Cannot attach: the caller went away"));
        if (socket.destroyed) gone();
        else socket.once("close", gone);
        sockets.handleUpgrade(request, socket, head, resolve);
      });
    },
    terminate: () => {
      for (const socket of sockets.clients) socket.terminate();
    },
  };
}
