/**
 * What a guest agent's program says about itself. It is never run on the host: it is made to be the
 * first process of a machine. Instead it carries one line of text.
 */
import { sha256Hex } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { ImageGuestAgent } from "../core/ports/image-source.ts";

const unknownVersion = "unknown";

/** Digest, version and protocol of the program in `content`. */
export function describeGuestAgent(content: Uint8Array): ImageGuestAgent {
  const text = Buffer.from(content).toString("latin1");
  const match = /perdure-guest (\d{1,5}\.\d{1,5}\.\d{1,5})(?: protocol (\d{1,3}))?/.exec(text);
  return {
    sha256: sha256Hex(content) as Digest,
    version: match?.[1] ?? unknownVersion,
    protocol: Number(match?.[2] ?? 1),
  };
}
