/**
 * API keys: made, listed, revoked; and whom a token that was sent stands for.
 *
 * A token is `pdk_`, the key's id, and 256 random bits. Only a SHA-256 of those is stored: a slow hash
 * protects what people choose, of which a list can be tried; of random bits there is no list, and each
 * request would pay for it. Digests are compared in constant time.
 *
 * A connection is bound to a key before the key is looked up, and cut when it is revoked or expires: so
 * no request, stream or WebSocket outlives it, whichever comes first.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { Socket } from "node:net";
import { e2bKeyOf, keyIdSchema, keyLimits, makeId, PerdureError } from "@perdure/protocol";
import type { CreatedKey, KeyId, KeysResponse, KeyView } from "@perdure/protocol";
import { keyView } from "../core/api-key.ts";
import type { ApiKey } from "../core/api-key.ts";
import type { Clock } from "../core/ports/clock.ts";
import type { Log } from "../core/ports/log.ts";
import { firstPage } from "../core/page.ts";
import type { StateStore } from "../core/ports/state-store.ts";

/** Why a token stands for nobody. Told to the log only: to the caller they are one. */
export type Refusal = "malformed" | "unknown" | "expired";

export interface ApiKeysOptions {
  readonly state: StateStore;
  readonly clock: Clock;
  readonly log: Log;
}

interface Bound {
  readonly sockets: Set<Socket>;
  expiry: NodeJS.Timeout | null;
}

const TOKEN = /^pdk_([0-9a-z]{26})_([A-Za-z0-9_-]{43})$/;
/** Longer times-out would end at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;
/** Compared with where there is no key, so that this takes as long. */
const NO_DIGEST = "0".repeat(64);

export class ApiKeys {
  readonly #options: ApiKeysOptions;
  /** Open connections by the key that was sent over them. */
  readonly #bound = new Map<KeyId, Bound>();
  readonly #touchedMs = new Map<KeyId, number>();

  constructor(options: ApiKeysOptions) {
    this.#options = options;
  }

  /** @throws `key_exists`, `too_many`, `bad_request` where it would have expired already */
  async create(
    facts: Pick<KeyView, "tenant" | "name" | "scope" | "agents" | "expiresAtMs">,
  ): Promise<CreatedKey> {
    const { state, clock } = this.#options;
    const nowMs = clock.nowMs();
    if (facts.expiresAtMs !== null && facts.expiresAtMs <= nowMs) {
      throw new PerdureError("bad_request", 'Cannot read "body.expiresAtMs": it is past', {
        details: { field: "body.expiresAtMs" },
      });
    }
    const id = makeId("ak", nowMs, clock.randomBytes(10));
    const secret = Buffer.from(clock.randomBytes(keyLimits.secretBytes)).toString("base64url");
    const { tenant, name, scope, agents, expiresAtMs } = facts;
    const key: ApiKey = {
      ...{ id, name, tenant, scope, agents, createdAtMs: nowMs, expiresAtMs, lastUsedAtMs: null },
      secretDigest: digestOf(secret),
    };
    await state.commit([{ kind: "insert-key", key }]);
    const token = `pdk_${id.slice("ak_".length)}_${secret}`;
    return { key: keyView(key), token, e2bKey: e2bKeyOf(token) };
  }

  async list(tenant: string, after: string, limit: number): Promise<KeysResponse> {
    const found = await this.#options.state.keys({ tenant, after, limit: limit + 1 });
    const { page, next } = firstPage(found, limit, ({ name }) => name);
    return { keys: page.map(keyView), next };
  }

  /** By name or id. Connections are cut before this resolves. @throws `key_not_found` */
  async revoke(tenant: string, ref: string): Promise<KeyView> {
    const { state } = this.#options;
    const id = keyIdSchema.safeParse(ref);
    const key = id.success ? await state.key(id.data) : await state.keyByName(tenant, ref);
    if (key?.tenant !== tenant) {
      throw new PerdureError("key_not_found", `No key has the name or id "${ref}"`, {
        hint: '"perdure key list" shows those that exist',
      });
    }
    await state.commit([{ kind: "delete-key", id: key.id }]);
    this.#cut(key.id);
    return keyView(key);
  }

  /** Whom `token`, sent over `socket`, stands for. The connection is cut when the key ends. */
  async find(token: string, socket: Socket): Promise<ApiKey | Refusal> {
    const [, name, secret = ""] = TOKEN.exec(token) ?? [];
    const id = keyIdSchema.safeParse(`ak_${name}`);
    if (!id.success) return "malformed";
    const unbind = this.#bind(id.data, socket);
    const key = await this.#options.state.key(id.data).catch((error: unknown) => {
      unbind();
      throw error;
    });
    const isRight = isSame(digestOf(secret), key?.secretDigest ?? NO_DIGEST);
    if (key === null || !isRight) {
      unbind();
      return "unknown";
    }
    const leftMs = key.expiresAtMs === null ? null : key.expiresAtMs - this.#options.clock.nowMs();
    if (leftMs !== null && leftMs <= 0) {
      unbind();
      return "expired";
    }
    this.#cutAt(key.id, leftMs);
    this.#touch(key.id);
    return key;
  }

  #bind(id: KeyId, socket: Socket): () => void {
    const bound = this.#bound.get(id) ?? { sockets: new Set<Socket>(), expiry: null };
    this.#bound.set(id, bound);
    if (bound.sockets.has(socket)) return () => undefined;
    bound.sockets.add(socket);
    const unbind = (): void => {
      socket.off("close", unbind);
      bound.sockets.delete(socket);
      if (bound.sockets.size > 0 || this.#bound.get(id) !== bound) return;
      if (bound.expiry !== null) clearTimeout(bound.expiry);
      this.#bound.delete(id);
    };
    socket.once("close", unbind);
    return unbind;
  }

  #cutAt(id: KeyId, leftMs: number | null): void {
    const bound = this.#bound.get(id);
    if (bound === undefined || leftMs === null || bound.expiry !== null) return;
    const ms = Math.min(leftMs, TIMER_MS_MAX);
    bound.expiry = setTimeout(() => {
      bound.expiry = null;
      if (ms < leftMs) this.#cutAt(id, leftMs - ms);
      else this.#cut(id);
    }, ms);
    bound.expiry.unref();
  }

  #cut(id: KeyId): void {
    for (const socket of this.#bound.get(id)?.sockets ?? []) socket.destroy();
    this.#touchedMs.delete(id);
  }

  #touch(id: KeyId): void {
    const { state, clock, log } = this.#options;
    const atMs = clock.nowMs();
    if (atMs - (this.#touchedMs.get(id) ?? -Infinity) < keyLimits.lastUsedEveryMs) return;
    this.#touchedMs.set(id, atMs);
    state.commit([{ kind: "touch-key", id, atMs }]).catch((error: unknown) => {
      const { code, message } = PerdureError.from(error);
      if (code !== "disk_full") log("warn", "A key's use could not be noted", { key: id, message });
    });
  }
}

function digestOf(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

function isSame(one: string, two: string): boolean {
  return timingSafeEqual(Buffer.from(one, "hex"), Buffer.from(two, "hex"));
}
