/**
 * In front of all that the TCP listener serves: each request, and each that asks for a WebSocket, goes to what it is
 * aimed at, before anything else sees it.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import { aimOf } from "./aim.ts";
import type { PortAim } from "./aim.ts";
import type { Inner } from "./e2b/e2b-api.ts";
import type { Services } from "./e2b/services.ts";
import { asSocket, responseOn } from "./upgrade.ts";
import type { Upgrade } from "./upgrade.ts";

export interface Doors {
  /** Of preview hosts, in lower case. */
  readonly domain: string;
  readonly api: Inner;
  readonly services: Services;
  readonly ports: Ports;
}

export interface Ports {
  /** @param upgrade where it asks for a WebSocket */
  serve(
    request: IncomingMessage,
    response: ServerResponse,
    aim: PortAim,
    upgrade: Upgrade | null,
  ): void;
}

/** What listens to `server` already serves our own API. */
export function dispatch(server: Server, doors: Doors): void {
  const requests = taken(server, "request");
  const upgrades = taken(server, "upgrade");

  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (serve(request, () => response, null)) return;
    for (const handle of requests) handle.call(server, request, response);
  });
  server.on("upgrade", (request: IncomingMessage, duplex: Duplex, head: Buffer) => {
    const socket = asSocket(duplex);
    if (serve(request, () => responseOn(request, socket), { socket, head })) return;
    for (const handle of upgrades) handle.call(server, request, socket, head);
  });

  /** False: it is for our own API. */
  function serve(
    request: IncomingMessage,
    responseOf: () => ServerResponse,
    upgrade: Upgrade | null,
  ): boolean {
    if (hosts(request) > 1) {
      refuse(responseOf());
      return true;
    }
    const aim = aimOf(request, doors.domain);
    switch (aim.kind) {
      case "native":
        return false;
      case "e2b":
        // There are no WebSockets: it is the request that it is without the wish for one.
        doors.api.handle(request, responseOf());
        return true;
      case "signed":
      case "services":
        doors.services.handle(request, responseOf(), aim);
        return true;
      case "port":
        doors.ports.serve(request, responseOf(), aim, upgrade);
        return true;
    }
  }
}

/** Whoever passed it on to us may have gone by another one (RFC 9112, 3.2). */
function hosts({ rawHeaders }: IncomingMessage): number {
  return rawHeaders.filter((text, at) => at % 2 === 0 && text.toLowerCase() === "host").length;
}

function refuse(response: ServerResponse): void {
  const error = new PerdureError("bad_request", "Cannot tell what the request is for: two hosts");
  const headers = { "content-type": "application/json", connection: "close" };
  response.writeHead(error.status, headers).end(JSON.stringify(error));
}

type Listener = (this: Server, ...what: unknown[]) => void;

function taken(server: Server, event: "request" | "upgrade"): readonly Listener[] {
  const listeners = server.listeners(event) as Listener[];
  server.removeAllListeners(event);
  return listeners;
}
