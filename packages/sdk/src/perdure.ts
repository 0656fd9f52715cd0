/** `Perdure` for Node: over the daemon's unix socket, or a URL. */
import { PerdureError } from "@perdure/protocol";
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
      url === undefined
        ? { socketPath: socketPath ?? daemonPaths().socket }
        : { url: checked(url) };
    super(createNodeTransport({ ...endpoint, ...(apiKey === undefined ? {} : { apiKey }) }));
  }
}

/** @throws `bad_request` */
function checked(url: string): string {
  const parsed = URL.parse(url);
  if (parsed?.protocol === "http:" || parsed?.protocol === "https:") return url;
  throw new PerdureError("bad_request", `Cannot use "${url}" as the URL of a daemon`, {
    hint: "Write it as in https://perdure.example:7070.",
  });
}
