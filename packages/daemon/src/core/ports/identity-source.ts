/** Makes what tells one computer from another. Keys are made on the host: no program runs inside for it. */
import type { GuestIdentity } from "./guest-link.ts";

export interface IdentitySource {
  /** A new identity: host name, machine-id, boot-id, SSH host key pair. Never the same twice. */
  make(hostname: string): Promise<GuestIdentity>;
}
