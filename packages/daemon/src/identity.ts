/** Identities of new computers: machine-id, boot-id, host name, and an SSH host key made on this host. */
import { randomBytes, randomUUID } from "node:crypto";
import type { IdentitySource } from "./core/ports/identity-source.ts";
import { makeSshHostKey } from "./ssh-host-key.ts";

export function createIdentitySource(): IdentitySource {
  return {
    make: (hostname) => {
      const { secret, open } = makeSshHostKey(`root@${hostname}`);
      const path = "/etc/ssh/ssh_host_ed25519_key";
      return Promise.resolve({
        hostname,
        machineId: randomBytes(16).toString("hex"),
        bootId: randomUUID(),
        files: [
          { path, mode: 0o600, bytes: Buffer.from(secret) },
          { path: `${path}.pub`, mode: 0o644, bytes: Buffer.from(open) },
        ],
      });
    },
  };
}
