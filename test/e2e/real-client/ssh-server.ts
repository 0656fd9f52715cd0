/** OpenSSH's server with a configuration and a host key of its own, for one key. Debian's `openssh-server`. */
import { execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface SshServer {
  readonly process: ChildProcess;
  /** The private key that is let in, as root of this host. */
  readonly privateKey: string;
  /** A line of `known_hosts`. @param host as the client names it */
  knownHost(host: string): string;
}

export function startSsh(folder: string, port: number): SshServer {
  mkdirSync("/run/sshd", { recursive: true, mode: 0o755 });
  const keyOf = (name: string): string => {
    const file = join(folder, name);
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", file]);
    return file;
  };
  const [host, client] = [keyOf("host_key"), keyOf("client_key")];
  const config = join(folder, "sshd_config");
  writeFileSync(
    config,
    [
      `Port ${port}`,
      "ListenAddress 127.0.0.1",
      `HostKey ${host}`,
      `AuthorizedKeysFile ${client}.pub`,
      "PidFile none",
      "StrictModes no",
      "UsePAM no",
      "PasswordAuthentication no",
      "PermitRootLogin prohibit-password",
      "",
    ].join("\n"),
  );
  const server = spawn("/usr/sbin/sshd", ["-D", "-e", "-f", config], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  const [type, key] = readFileSync(`${host}.pub`, "utf8").split(" ");
  return {
    process: server,
    privateKey: readFileSync(client, "utf8"),
    knownHost: (name) => `[${name}]:${port} ${type} ${key}\n`,
  };
}
