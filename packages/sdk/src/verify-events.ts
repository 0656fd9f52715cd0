/** The stream of a verification, from lines of JSON into events. */
import { PerdureError, verifyEventSchema } from "@perdure/protocol";
import type { VerifyEvent } from "@perdure/protocol";
import { jsonValues } from "./json-stream.ts";

/** What `verify()` yields: `progress` now and then, a `checkpoint` for each, `end` last. */
export type Verification = Exclude<VerifyEvent, { type: "error" }>;

/** @throws `interrupted` where the stream breaks off; the error that the daemon met while reading */
export async function* readVerification(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Verification> {
  for await (const event of jsonValues(verifyEventSchema, chunks)) {
    if (event.type === "error") throw PerdureError.fromBody(event.error);
    yield event;
    if (event.type === "end") return;
  }
  throw new PerdureError("interrupted", "The verification ended before its end", {
    hint: "Nothing was changed; run it again.",
  });
}
