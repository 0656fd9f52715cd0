/** A connection to a port of this host, in place of one inside: for tests of the API and what calls it. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { PerdureError } from "@perdure/protocol";
import type { AgentConnection } from "../../../packages/daemon/src/core/command.ts";

export async function connectHere(port: number, generation: number): Promise<AgentConnection> {
  const socket: Socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  try {
    await once(socket, "connect");
  } catch {
    throw new PerdureError("port_refused", `Cannot connect to port ${port}: nobody listens`);
  }
  let broken: PerdureError | null = null;
  let left = false;
  socket.on("error", () => {
    broken = new PerdureError("connection_reset", "The program broke the connection off");
  });
  const pieces = socket.iterator({ destroyOnReturn: false });
  return {
    generation,
    attend: () => () => undefined,
    read: async () => {
      try {
        const next = await pieces.next();
        return next.done === true ? null : (next.value as Buffer);
      } catch (error) {
        if (left) return null;
        throw broken ?? PerdureError.from(error, "connection_reset");
      }
    },
    write: (bytes) =>
      new Promise((resolve, reject) => {
        socket.write(bytes, (error) => {
          if (error == null) resolve();
          else reject(broken ?? PerdureError.from(error, "connection_reset"));
        });
      }),
    end: () => void socket.end(),
    close: () => {
      left = true;
      if (!socket.destroyed) socket.resetAndDestroy();
    },
  };
}
