/** Both ends of a connection over TCP, and a connection inside that is played by one. For tests. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import type { InsideConnection } from "../carry.ts";

/** `near` is the program's end. */
export interface PlayedInside extends InsideConnection {
  readonly near: Socket;
}

export class SocketPairs {
  readonly #sockets: Socket[] = [];

  async pair(): Promise<[Socket, Socket]> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const accepted = once(server, "connection") as Promise<[Socket]>;
    const { port } = server.address() as AddressInfo;
    const near = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    await once(near, "connect");
    const [far] = await accepted;
    server.close();
    for (const socket of [near, far]) {
      socket.on("error", () => undefined);
      this.#sockets.push(socket);
    }
    return [near, far];
  }

  async inside(): Promise<PlayedInside> {
    const [near, far] = await this.pair();
    const pieces: AsyncIterator<Uint8Array> = far.iterator({ destroyOnReturn: false });
    return {
      near,
      read: async () => {
        const piece = await pieces.next();
        return piece.done === true ? null : piece.value;
      },
      write: (bytes) =>
        new Promise((resolve, reject) => {
          far.write(bytes, (error) => (error == null ? resolve() : reject(error)));
        }),
      end: () => void far.end(),
      close: () => void far.resetAndDestroy(),
    };
  }

  close(): void {
    for (const socket of this.#sockets.splice(0)) socket.destroy();
  }
}
