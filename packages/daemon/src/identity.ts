/** Identities of new computers: machine-id, boot-id, host name, and an SSH host key made on this host. */
import { generateKeyPair, randomBytes, randomUUID } from "node:crypto";
import { promisify } from "node:util";
import sshpk from "sshpk";
import type { GuestIdentity } from "./core/ports/guest-link.ts";
import type { IdentitySource } from "./core/ports/identity-source.ts";

const generate = promisify(generateKeyPair);

export function createIdentitySource(): IdentitySource {
  return {
    async make(hostname): Promise<GuestIdentity> {
      const { privateKey } = await generate("ed25519");
      const pem = privateKey.export({ type: "pkcs8", format: "pem" });
      const key = sshpk.parsePrivateKey(pem, "pem");
      key.comment = `root@${hostname}`;
      return {
        hostname,
        machineId: randomBytes(16).toString("hex"),
        bootId: randomUUID(),
        files: [
          {
            path: "/etc/ssh/ssh_host_ed25519_key",
            mode: 0o600,
            bytes: Buffer.from(key.toString("ssh")),
          },
          {
            path: "/etc/ssh/ssh_host_ed25519_key.pub",
            mode: 0o644,
            bytes: Buffer.from(`${key.toPublic().toString("ssh")}\n`),
          },
        ],
      };
    },
  };
}
