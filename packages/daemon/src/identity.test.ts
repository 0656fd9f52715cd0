import { execFile } from "node:child_process";
import { sign, verify } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import sshpk from "sshpk";
import { expect, test } from "vitest";
import { createIdentitySource } from "./identity.ts";

test("two identities share nothing but the host name they were asked for", async () => {
  const source = createIdentitySource();
  const [a, b] = await Promise.all([source.make("a1"), source.make("a1")]);
  expect(a.machineId).toMatch(/^[0-9a-f]{32}$/);
  expect(a.machineId).not.toBe(b.machineId);
  expect(a.bootId).not.toBe(b.bootId);
  expect(a.files[0]?.bytes).not.toEqual(b.files[0]?.bytes);
});

test("the SSH host key is an OpenSSH Ed25519 pair whose halves belong together", async () => {
  // Names of every length up to the block's, so that every padding is met.
  for (let length = 1; length <= 9; length++) {
    const { files } = await createIdentitySource().make("a".repeat(length));
    const [secret, open] = files.map((file) => Buffer.from(file.bytes).toString());
    const key = sshpk.parsePrivateKey(secret ?? "", "ssh-private");
    const other = sshpk.parseKey(open ?? "", "ssh");
    expect([key.type, other.type]).toEqual(["ed25519", "ed25519"]);
    expect([key.comment, other.comment]).toEqual(Array(2).fill(`root@${"a".repeat(length)}`));
    expect(other.fingerprint().toString()).toBe(key.toPublic().fingerprint().toString());
    const signed = sign(null, Buffer.from("said"), key.toString("pkcs8"));
    expect(verify(null, Buffer.from("said"), other.toString("pkcs8"), signed)).toBe(true);
    expect(files.map(({ mode }) => mode)).toEqual([0o600, 0o644]);
  }
});

test("OpenSSH itself reads the key", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-ssh-"));
  try {
    const { files } = await createIdentitySource().make("a1");
    const [secret, open] = files;
    const path = join(folder, "key");
    await writeFile(path, secret?.bytes ?? "", { mode: 0o600 });
    const { stdout } = await promisify(execFile)("ssh-keygen", ["-y", "-f", path]).catch(
      (error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
        return context.skip("there is no ssh-keygen here");
      },
    );
    expect(stdout).toBe(Buffer.from(open?.bytes ?? "").toString());
  } finally {
    await rm(folder, { recursive: true });
  }
});
