import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { lintTree, refuseUncleanTree } from "./image-lint.ts";
import type { LintRule } from "./image-lint.ts";

const options = { defaultHostName: "perdure", buildHostName: "build-7.example.org" };
const pem = (kind: string): string =>
  `-----BEGIN ${kind}PRIVATE KEY-----\n${"QUJDREVGR0hJSktMTU5PUA".repeat(3)}\n`;

let root: string;

beforeEach(async () => {
  root = await mkdtemp(path.join(os.tmpdir(), "perdure-lint-"));
  await put("/etc/hostname", "perdure\n");
  await put("/etc/machine-id", "");
  await put("/etc/resolv.conf", "");
  await put("/etc/shadow", "root:*:1::::::\nuser:!:1::::::\n");
  await put("/etc/gshadow", "root:*::\nuser:!::\nstaff:::\n");
  await put("/etc/hosts", "127.0.0.1 localhost\n");
  await put("/usr/bin/su", "program", 0o4755);
  await put("/usr/bin/openssl", "prints -----BEGIN RSA PRIVATE KEY-----\0 and more");
  await put("/etc/ssl/certs/root.pem", "-----BEGIN CERTIFICATE-----\nQUJDREVGR0hJSktMTU5PUA==\n");
  await mkdir(path.join(root, "var/lib/dbus"), { recursive: true });
  await symlink("/etc/machine-id", path.join(root, "var/lib/dbus/machine-id"));
});

afterEach(() => rm(root, { recursive: true }));

async function put(file: string, content: string, mode = 0o644): Promise<void> {
  const target = path.join(root, file);
  await mkdir(path.dirname(target), { recursive: true });
  await writeFile(target, content);
  await chmod(target, mode);
}

describe("image lint", () => {
  test("accepts a tree as Debian makes it", async () => {
    expect(await lintTree(root, options)).toEqual([]);
    await refuseUncleanTree(root, options);
  });

  const bad: [LintRule, string, string, number?][] = [
    ["private-key", "/etc/ssh/ssh_host_ed25519_key", "x"],
    ["private-key", "/home/user/id_rsa", "x"],
    ["private-key", "/opt/server.pem", pem("")],
    ["private-key", "/opt/notes.txt", `see below\n\n${pem("RSA ")}`],
    ["private-key", "/opt/openssh", pem("OPENSSH ")],
    [
      "private-key",
      "/opt/encrypted.pem",
      "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n",
    ],
    ["private-key", "/opt/putty", "PuTTY-User-Key-File-3: ssh-ed25519\n"],
    ["private-key", "/opt/store.p12", "x"],
    ["private-key", "/etc/ssl/private/any", "x"],
    ["private-key", "/opt/large", "-".repeat((1 << 20) - 20) + pem("EC ")],
    ["credential-file", "/root/.netrc", "machine example.org password x"],
    ["credential-file", "/home/user/.npmrc", "//registry/:_authToken=x"],
    ["credential-file", "/home/user/.git-credentials", "https://a:b@example.org"],
    ["credential-file", "/root/.aws/credentials", "x"],
    ["credential-file", "/root/.docker/config.json", "{}"],
    ["credential-file", "/root/.ssh/authorized_keys", "ssh-ed25519 AAAA"],
    ["credential-file", "/root/.bash_history", "export TOKEN=x"],
    ["credential-file", "/etc/apt/auth.conf.d/mirror.conf", "machine mirror login a password b"],
    [
      "credential-file",
      "/etc/apt/sources.list",
      "deb https://a:b@mirror.example.org/debian x main",
    ],
    ["password", "/etc/shadow", "root:*:1::::::\nuser:$y$j9T$abc$def:1::::::\n"],
    ["password", "/etc/shadow", "root::1::::::\n"],
    ["fixed-identity", "/etc/machine-id", "0123456789abcdef0123456789abcdef\n"],
    ["fixed-identity", "/var/lib/systemd/random-seed", "random"],
    ["fixed-identity", "/var/lib/urandom/random-seed", "random"],
    ["fixed-identity", "/etc/hostid", "abcd"],
    ["fixed-identity", "/etc/hostname", "somebody\n"],
    ["host-trace", "/etc/resolv.conf", "nameserver 192.0.2.1\n"],
    ["host-trace", "/etc/hosts", "127.0.1.1 build-7.example.org build-7\n"],
    [
      "host-trace",
      "/etc/apt/apt.conf.d/80proxy",
      'Acquire::http::Proxy "http://192.0.2.1:3128";\n',
    ],
    ["local-authority", "/usr/local/share/ca-certificates/company.crt", "x"],
    ["setuid", "/usr/local/bin/become-root", "x", 0o4755],
    ["setuid", "/usr/bin/wall", "x", 0o2755],
    ["build-leftover", "/var/cache/apt/archives/curl_1_amd64.deb", "x"],
    ["build-leftover", "/var/lib/apt/lists/mirror_dists_x_InRelease", "x"],
  ];

  test.each(bad)("refuses %s in %s", async (rule, file, content, mode) => {
    await put(file, content, mode);
    expect(await lintTree(root, options)).toEqual([
      { rule, path: file, message: expect.any(String) as string },
    ]);
    const refused = await refuseUncleanTree(root, options).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(PerdureError);
    expect(refused).toMatchObject({ code: "image_lint_failed" });
    expect((refused as PerdureError).message).toContain(file);
  });

  test("refuses a machine id of the message bus that is not a link", async () => {
    await rm(path.join(root, "var/lib/dbus/machine-id"));
    await put("/var/lib/dbus/machine-id", "0123456789abcdef0123456789abcdef\n");
    expect((await lintTree(root, options)).map(({ rule }) => rule)).toEqual(["fixed-identity"]);
  });

  test("does not look for a host name that says nothing", async () => {
    await put("/etc/hosts", "127.0.0.1 localhost vm\n");
    expect(await lintTree(root, { ...options, buildHostName: "localhost" })).toEqual([]);
    expect(await lintTree(root, { ...options, buildHostName: "vm" })).toEqual([]);
  });
});
