/**
 * A port of this host whose connections go to a port inside an agent, one for one. It listens through sleeps of the
 * agent and restarts of the daemon; what was open then is reset, because half of something is not the whole.
 */
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo, Server, Socket } from "node:net";
import { breakOff } from "@perdure/protocol";
import { PerdureError } from "@perdure/sdk";
import type { Perdure, PortConnection } from "@perdure/sdk";

export interface Forwarding {
  readonly agent: string;
  readonly port: number;
  /** Of this host; 0: one that is free. */
  readonly localPort: number;
}

export interface ForwardEvents {
  /** A connection could not be made, or broke. */
  readonly failed: (forwarding: Forwarding, error: PerdureError) => void;
}

/** Resolves once it listens, with the port that it has. @throws `bad_request` where it cannot listen */
export async function forwardPort(
  perdure: Perdure,
  wanted: Forwarding,
  { failed }: ForwardEvents,
  stopped: AbortSignal,
): Promise<Forwarding> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on("error", () => undefined);
    const stop = (): void => breakOff(socket);
    stopped.addEventListener("abort", stop, { once: true });
    socket.once("close", () => stopped.removeEventListener("abort", stop));
    pass(perdure, wanted, socket, stopped).catch((error: unknown) => {
      if (!stopped.aborted && !socket.destroyed) failed(wanted, PerdureError.from(error));
      breakOff(socket);
    });
  });
  await listen(server, wanted.localPort);
  stopped.addEventListener("abort", () => server.close(), { once: true });
  return { ...wanted, localPort: (server.address() as AddressInfo).port };
}

async function listen(server: Server, port: number): Promise<void> {
  server.listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why = code === "EADDRINUSE" ? "something else does" : message;
    throw new PerdureError("bad_request", `Cannot listen on 127.0.0.1:${port}: ${why}`, {
      hint: "Give another local port, as in 8080:8000, or 0 for one that is free.",
    });
  }
}

async function pass(
  perdure: Perdure,
  { agent, port }: Forwarding,
  socket: Socket,
  signal: AbortSignal,
): Promise<void> {
  // What the client says meanwhile waits in its socket.
  const connection = await perdure.connect(agent, port, { signal });
  socket.once("close", () => connection.close());
  if (socket.destroyed) connection.close();
  await Promise.all([toProgram(socket, connection), toClient(connection, socket)]);
}

async function toProgram(socket: Socket, connection: PortConnection): Promise<void> {
  for await (const bytes of socket.iterator({ destroyOnReturn: false })) {
    await connection.write(bytes as Buffer);
  }
  await connection.end();
}

async function toClient(connection: PortConnection, socket: Socket): Promise<void> {
  for await (const bytes of connection) {
    if (socket.write(bytes) || socket.destroyed) continue;
    await Promise.race([once(socket, "drain"), once(socket, "close")]).catch(() => undefined);
  }
  socket.end();
}
