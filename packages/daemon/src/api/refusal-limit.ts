/**
 * How often an address may be refused: a few at once, then one now and then. Beyond it the answer is
 * `too_many` and nothing is logged, so that guessing fills no log. A key that is right is never limited.
 */
import { isIPv6 } from "node:net";
import { keyLimits } from "@perdure/protocol";

/** Addresses that are remembered; the one that was quiet for the longest goes first. */
const ADDRESSES_MAX = 10_000;

interface Bucket {
  left: number;
  atMs: number;
}

export class RefusalLimit {
  readonly #buckets = new Map<string, Bucket>();

  /** Notes one refusal. Returns how long until the next is answered, milliseconds; 0: this one is. */
  note(address: string, nowMs: number): number {
    const { refusalsMax, refusalEveryMs } = keyLimits;
    const network = networkOf(address);
    const known = this.#buckets.get(network) ?? { left: refusalsMax, atMs: nowMs };
    const refilled = known.left + Math.max(0, nowMs - known.atMs) / refusalEveryMs;
    const bucket = { left: Math.min(refusalsMax, refilled), atMs: nowMs };
    const isOver = bucket.left < 1;
    if (!isOver) bucket.left -= 1;
    this.#buckets.delete(network);
    this.#buckets.set(network, bucket);
    for (const oldest of this.#buckets.keys()) {
      if (this.#buckets.size <= ADDRESSES_MAX) break;
      this.#buckets.delete(oldest);
    }
    return isOver ? Math.ceil((1 - bucket.left) * refusalEveryMs) : 0;
  }
}

/** Whoever has one IPv6 address has its whole /64. */
function networkOf(address: string): string {
  if (!isIPv6(address) || address.startsWith("::ffff:")) return address;
  const [head = "", tail] = address.split("::");
  const left = head === "" ? [] : head.split(":");
  const right = tail === undefined || tail === "" ? [] : tail.split(":");
  const middle = tail === undefined ? [] : Array<string>(8 - left.length - right.length).fill("0");
  return [...left, ...middle, ...right].slice(0, 4).join(":");
}
