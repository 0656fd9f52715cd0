/**
 * A request that came with an idempotency key, as it is kept: what it asked, and what was answered.
 * Who keeps them and why is in api/request-keeper.ts.
 */

export interface KeptRequest {
  /** Who asked: a key means nothing to anybody else. */
  readonly principal: string;
  readonly key: string;
  /** SHA-256 of what was asked. */
  readonly digest: string;
  readonly atMs: number;
  /** Null: it was begun, and how it ended is not known. */
  readonly answer: KeptAnswer | null;
}

export interface KeptAnswer {
  readonly status: number;
  /** JSON; null where there is no body. */
  readonly body: string | null;
}

/** What stays when requests are collected: the newest. */
export interface KeptRequestBounds {
  /** Older ones go. */
  readonly sinceMs: number;
  readonly ofPrincipalMax: number;
  readonly countMax: number;
  /** Of answers, in UTF-8. */
  readonly bytesMax: number;
}
