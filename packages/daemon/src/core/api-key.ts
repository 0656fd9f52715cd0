/** An API key as the state store keeps it: what it allows, and a digest of its secret. */
import type { KeyView } from "@perdure/protocol";

export type { KeyId } from "@perdure/protocol";

export interface ApiKey extends Readonly<KeyView> {
  /** SHA-256 of the secret, hex. */
  readonly secretDigest: string;
}

export function keyView(key: ApiKey): KeyView {
  const { id, name, tenant, scope, agents, createdAtMs, expiresAtMs, lastUsedAtMs } = key;
  return { id, name, tenant, scope, agents, createdAtMs, expiresAtMs, lastUsedAtMs };
}
