/**
 * In front of the `/v1` server of the TCP listener: requests that are E2B's go to E2B's API, or to the sandbox that
 * they name; all others go on as they were.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { aimOf, SERVICE_PORT } from "./aim.ts";
import type { Inner } from "./e2b-api.ts";
import { isE2bPath } from "./e2b-table.ts";
import type { Services } from "./services.ts";

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** A port of a sandbox, as a request names it. */
export interface PortAim {
  readonly sandbox: string;
  readonly port: number;
}

export interface E2bFront {
  readonly api: Inner;
  readonly services: Services;
  /** For ports of sandboxes other than their services'. */
  readonly ports: (request: IncomingMessage, response: ServerResponse, aim: PortAim) => void;
}

export function placeInFront(server: Server, { api, services, ports }: E2bFront): void {
  const native = server.listeners("request") as Handler[];
  server.removeAllListeners("request");
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    const aim = aimOf(request, isE2bPath);
    switch (aim.kind) {
      case "native":
        for (const handle of native) handle(request, response);
        return;
      case "e2b":
        api.handle(request, response);
        return;
      case "signed":
        services.handle(request, response, aim);
        return;
      case "sandbox":
        if (aim.port === SERVICE_PORT) services.handle(request, response, aim);
        else ports(request, response, aim);
    }
  });
}

/** Until ports are let through: none is open. */
export function noPorts(_request: IncomingMessage, response: ServerResponse, aim: PortAim): void {
  const { sandbox: sandboxId, port } = aim;
  const message = "The sandbox is running but port is not open";
  const body = JSON.stringify({ message, sandboxId: sandboxId.slice(0, 64), port, code: 502 });
  response.writeHead(502, { "content-type": "application/json", connection: "close" }).end(body);
}
