/**
 * Damage: bytes that are not those that were written. Formats and worker jobs throw it; the stores
 * turn it into the protocol's error (`store-error.ts`). It names the part and the check that found it,
 * and never quotes content: a page or a key has no place in a message.
 */
/** What of a checkpoint or template was found damaged. */
export type Part = "manifest" | "page-map" | "devices" | "pack" | "base" | "layer" | "template";

/** Which check found it: the one that C16 asks a test to name. */
export type Check = "signature" | "digest" | "authentication" | "format" | "size" | "presence";

export class Damage extends Error {
  override readonly name = "Damage";
  readonly part: Part;
  readonly check: Check;

  constructor(part: Part, check: Check, message: string) {
    super(message);
    this.part = part;
    this.check = check;
  }
}
