/**
 * A body that is passed on as it comes, and its digest. A reader that gives up leaves the socket whole,
 * and the rest is read and dropped: many clients look at the answer only after they have sent everything.
 */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { PerdureError } from "@perdure/protocol";

export class Upload implements AsyncIterable<Uint8Array> {
  readonly #request: IncomingMessage;
  readonly #hash = createHash("sha256");

  constructor(request: IncomingMessage) {
    this.#request = request;
  }

  /** Once. @throws `cancelled` where the uploader goes away */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for await (const chunk of this.#request.iterator({ destroyOnReturn: false })) {
        this.#hash.update(chunk as Uint8Array);
        yield chunk as Uint8Array;
      }
    } catch (error) {
      throw new PerdureError("cancelled", "The uploader went away before the end of the file", {
        cause: error,
      });
    } finally {
      this.#request.resume();
    }
  }

  /** Reads what was not read yet. Not after a reader that gave up. */
  async digest(): Promise<string> {
    if (!this.#request.readableEnded) for await (const _ of this);
    return this.#hash.copy().digest("hex");
  }
}
