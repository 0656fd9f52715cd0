/** A guest behind a link, for the contract to be tested on. */
import type { Duplex } from "node:stream";
import type { GuestLink } from "../../../packages/daemon/src/core/ports/guest-link.ts";

export type GuestCapability =
  | "freeze"
  | "clock"
  | "clock-source"
  | "entropy"
  | "identity"
  | "generation"
  | "stats"
  | "drop-caches"
  | "kill-tree"
  | "version-2"
  | "version-3"
  | "way-out";

export interface GuestLinkSubject {
  /** A new link to the same guest, not yet synchronised. Ends the epoch before. */
  connect(): Promise<GuestLink>;
  /** An account inside that may write in `folder`. */
  readonly user: string;
  readonly folder: string;
  /** A program inside that listens on a port of its own and does `serve` with each connection. */
  listen(
    serve: (peer: Duplex, breakOff: () => void) => void,
  ): Promise<{ port: number; close: () => Promise<void> }>;
  /** A program inside connects to elsewhere: its end. Absent where "way-out" is missing. */
  dial?(to: { name: string | null; address: string; port: number }): Duplex;
  readonly missing: Readonly<Partial<Record<GuestCapability, string>>>;
  close(): Promise<void>;
}
