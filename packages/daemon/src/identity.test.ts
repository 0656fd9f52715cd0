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
  const { files } = await createIdentitySource().make("a1");
  const [secret, pub] = files.map((file) => Buffer.from(file.bytes).toString());
  const parsed = sshpk.parsePrivateKey(secret ?? "", "ssh-private");
  expect(parsed.type).toBe("ed25519");
  expect(
    sshpk
      .parseKey(pub ?? "", "ssh")
      .fingerprint()
      .toString(),
  ).toBe(parsed.toPublic().fingerprint().toString());
  expect(files[0]?.mode).toBe(0o600);
});
