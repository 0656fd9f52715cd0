/** Where the daemon listens besides its socket, and what a listening that fails is called. */
import { PerdureError } from "@perdure/protocol";
import type { Certificates } from "./tls/certificates.ts";
import type { TlsChoice } from "./tls/open.ts";

export interface TcpListen<Tls = Certificates> {
  /** An address or a name of this host. */
  readonly host: string;
  /** 0: one that is free. */
  readonly port: number;
  /** Null: in the clear. */
  readonly tls: Tls | null;
  /** Origins of pages that browsers may call from. */
  readonly corsOrigins: readonly string[];
  /** Of preview hosts, `PORT-ID.DOMAIN`; in lower case, default `localhost`. */
  readonly previewDomain?: string;
}

/** As it is asked for, before anything is opened. */
export type TcpSettings = TcpListen<TlsChoice>;

export const PREVIEW_DOMAIN_DEFAULT = "localhost";

/** Connections at once, over all callers. */
export const TCP_CONNECTIONS_MAX = 1024;

export function listenError(tcp: TcpListen | null, error: unknown): PerdureError {
  const { host, port } = tcp ?? { host: "", port: 0 };
  const { code, message } = error as NodeJS.ErrnoException;
  const why =
    code === "EADDRINUSE"
      ? "something else does"
      : code === "EADDRNOTAVAIL"
        ? "this host has no such address"
        : code === "EACCES"
          ? "this user may not"
          : message;
  return new PerdureError("bad_request", `Cannot listen on ${host}:${port}: ${why}`, {
    hint: "Give another --listen, or none.",
    cause: error,
  });
}
