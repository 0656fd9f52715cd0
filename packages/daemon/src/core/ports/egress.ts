/**
 * Egress: the only way out of a VM. It serves the connections that programs inside make to elsewhere, each as the
 * agent's policy of that moment says.
 */
import type { EgressPolicy } from "@perdure/protocol";
import type { OutboundConnection } from "./guest-link.ts";

/** One connection that a program inside wants, and where it leads. */
export interface ConnectionStart {
  readonly atMs: number;
  readonly name: string | null;
  /** Where it is made to, or would have been; null: it was not looked up, or leads nowhere. */
  readonly address: string | null;
  readonly port: number;
  /** The method of its first request, where it was looked at. */
  readonly method: string | null;
  /** Place of the rule that decided, from 0; null: none did. */
  readonly rule: number | null;
  /** Whether what it does outside will not be known here. */
  readonly unmediated: boolean;
}

/** What became of it. */
export interface ConnectionEnd extends ConnectionStart {
  readonly outcome: "carried" | "denied" | "failed";
  readonly outBytes: number;
  readonly inBytes: number;
  readonly ms: number;
  /** Why it was denied, failed or broken off. */
  readonly why: string | null;
}

/** Where connections are told. */
export interface ConnectionTeller {
  /**
   * One is about to be carried: not a byte of it goes out before this resolves, and none where it rejects. What is
   * returned tells its end, once.
   */
  begun(start: ConnectionStart): Promise<(end: ConnectionEnd) => Promise<void>>;
  /** One that was never carried. Does not reject. */
  refused(end: ConnectionEnd): Promise<void>;
  /** Bytes have passed, either way. */
  passed(): void;
}

export interface WayOut {
  /** From now on this policy holds: what it denies of those that are open is broken off at once. */
  apply(policy: EgressPolicy): void;
  /** Connections that are being made or carried. */
  readonly open: number;
}

export interface Egress {
  /** Serves what is wanted, from now until it ends. */
  serve(
    wanted: AsyncIterableIterator<OutboundConnection, undefined>,
    policy: EgressPolicy,
    teller: ConnectionTeller,
  ): WayOut;
}
