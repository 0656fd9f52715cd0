/** `Perdure` for browsers: `fetch` to a URL. */
import { PerdureClient } from "./client.ts";
import { createFetchTransport } from "./fetch-transport.ts";

export interface PerdureOptions {
  /** Where the daemon listens, as in `https://perdure.example`. */
  readonly url: string;
  /** Sent with every call, as a bearer token. */
  readonly apiKey?: string;
}

/**
 * A client of the daemon at a URL. Where that is another origin than the page's, the daemon must allow it.
 *
 * A browser sends no stream: what `writeFile` is given as an iterable is collected first. A `Blob`, so a
 * `File`, is read from where it lies.
 *
 * @example
 * const client = new Perdure({ url: "http://127.0.0.1:7070", apiKey: "…" });
 * await client.close();
 */
export class Perdure extends PerdureClient {
  constructor({ url, apiKey }: PerdureOptions) {
    super(createFetchTransport({ url, ...(apiKey === undefined ? {} : { apiKey }) }));
  }
}
