/**
 * What lets a client into a sandbox: tokens that are derived from a key of the daemon and the agent's id, so that
 * none is stored; and paths of files that are signed with one.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { AgentId } from "@perdure/protocol";

/** `services`: those of the sandbox itself; `traffic`: its other ports. */
export type TokenUse = "services" | "traffic";

export class AccessTokens {
  readonly #key: Uint8Array;

  /** @param key 32 bytes that nothing else is made of */
  constructor(key: Uint8Array) {
    this.#key = key;
  }

  of(agent: AgentId, use: TokenUse): string {
    return createHmac("sha256", this.#key).update(`${use}:${agent}`).digest("hex");
  }

  isRight(agent: AgentId, use: TokenUse, sent: string): boolean {
    return isSame(this.of(agent, use), sent);
  }

  /** Whether `signed` holds now, by a clock in milliseconds. */
  isSigned(agent: AgentId, signed: SignedPath, nowMs: number): boolean {
    const token = this.of(agent, "services");
    if (!isSame(signatureOf(signed, token), signed.signature)) return false;
    return signed.expiration === null || Number(signed.expiration) * 1000 > nowMs;
  }
}

/** What was sent, each as it was sent. */
export interface SignedPath {
  readonly path: string;
  readonly operation: "read" | "write";
  readonly user: string;
  readonly signature: string;
  /** Seconds since the epoch; null: none was sent. */
  readonly expiration: string | null;
}

export function signatureOf(
  { path, operation, user, expiration }: Omit<SignedPath, "signature">,
  token: string,
): string {
  const parts = [path, operation, user, token, ...(expiration === null ? [] : [expiration])];
  const digest = createHash("sha256").update(parts.join(":")).digest("base64");
  return `v1_${digest.replace(/=+$/, "")}`;
}

/** In constant time but for the length, which is no secret. */
function isSame(one: string, two: string): boolean {
  const [first, second] = [Buffer.from(one), Buffer.from(two)];
  return first.length === second.length && timingSafeEqual(first, second);
}
