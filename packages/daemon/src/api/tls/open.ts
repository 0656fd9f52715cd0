/** The certificates of a listener, of whatever kind was asked for. */
import { join } from "node:path";
import type { Log } from "../../core/ports/log.ts";
import type { Certificates, KeyPair } from "./certificates.ts";
import { givenCertificates } from "./given.ts";
import type { GivenFiles } from "./given.ts";

/** `generated`: made by the daemon. Otherwise what files hold, which are looked at again later. */
export type TlsChoice = "generated" | (GivenFiles & KeyPair);

export interface CertificateFacts {
  readonly home: string;
  readonly host: string;
  readonly domain: string;
  readonly nowMs: () => number;
  readonly log: Log;
}

export async function openCertificates(
  choice: TlsChoice,
  { home, host, domain, nowMs, log }: CertificateFacts,
): Promise<Certificates> {
  if (choice !== "generated") return givenCertificates(choice, choice, log);
  // Most daemons need none of this.
  const { openGeneratedCertificates } = await import("./generated.ts");
  return openGeneratedCertificates({ folder: join(home, "tls"), host, domain, nowMs, log });
}
