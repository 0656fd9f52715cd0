/** A connection to a port inside as a socket of Node's HTTP client, with back-pressure both ways. */
import { Duplex } from "node:stream";
import { PerdureError } from "@perdure/protocol";
import type { AgentConnection } from "../../core/command.ts";

export class PortDuplex extends Duplex {
  readonly connection: AgentConnection;
  #reading = false;

  constructor(connection: AgentConnection) {
    // As that client's sockets are: when the program has ended there is nothing to wait for.
    super({ allowHalfOpen: false, autoDestroy: true });
    this.connection = connection;
  }

  override _read(): void {
    if (this.#reading) return;
    this.#reading = true;
    this.connection.read().then(
      (bytes) => {
        this.#reading = false;
        this.push(bytes);
      },
      (error: unknown) => this.destroy(PerdureError.from(error)),
    );
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error) => void): void {
    this.connection.write(chunk).then(
      () => done(),
      (error: unknown) => done(PerdureError.from(error)),
    );
  }

  override _final(done: () => void): void {
    this.connection.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.connection.close();
    done(error);
  }

  // What a client of HTTP asks of its sockets.
  setKeepAlive(): this {
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}
