/** For tests: a TCP port that leads to a unix socket, byte for byte. */
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";

export interface TcpDoor {
  readonly url: string;
  close(): void;
}

export async function openTcpDoor(socketPath: string): Promise<TcpDoor> {
  const open = new Set<Socket>();
  const server = createServer((from) => {
    const to = connect(socketPath);
    for (const socket of [from, to]) {
      open.add(socket);
      socket
        .on("error", () => undefined)
        .on("close", () => {
          open.delete(socket);
          from.destroy();
          to.destroy();
        });
    }
    from.pipe(to).pipe(from);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}
