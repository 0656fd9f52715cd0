/** `Perdure` for Node: over the daemon's unix socket, or a URL. */
import { PerdureClient } from "./client.ts";
import { createNodeTransport } from "./node-transport.ts";
import { daemonPaths } from "./paths.ts";

export interface PerdureOptions {
  /** Unix socket of the daemon. Default: see `daemonPaths`. */
  readonly socketPath?: string;
  /** A daemon that listens on TCP, as in `http://127.0.0.1:7070`. Instead of `socketPath`. */
  readonly url?: string;
  /** Sent with every call, as a bearer token. */
  readonly apiKey?: string;
}

/**
 * A client of the daemon on this host, or of one at a URL.
 *
 * @example
 * const client = new Perdure();
 * await client.close();
 */
export class Perdure extends PerdureClient {
  constructor({ socketPath, url, apiKey }: PerdureOptions = {}) {
    const endpoint =
      url === undefined ? { socketPath: socketPath ?? daemonPaths().socket } : { url };
    super(createNodeTransport({ ...endpoint, ...(apiKey === undefined ? {} : { apiKey }) }));
  }
}
