/** What a listener of TLS shows of itself, and what takes its place while it listens. */
import type { SecureContext } from "node:tls";

/** PEM. */
export interface KeyPair {
  /** With the certificates between it and the authority, if there are any. */
  readonly cert: string;
  readonly key: string;
}

export interface Certificates {
  /** As of now. */
  readonly pair: KeyPair;
  /** Of whoever has to be trusted by clients, as PEM in a file; null: that is not ours to say. */
  readonly authorityFile: string | null;
  /** For a name that `pair` does not cover; null: `pair` is shown. */
  contextFor(serverName: string): Promise<SecureContext | null>;
  /** Calls `take` with each pair that takes the place of the one before. */
  follow(take: (pair: KeyPair) => void): void;
  close(): void;
}
