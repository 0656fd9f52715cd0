import { chmod, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { newAgentId } from "../../../../test/contract/checkpoint-store-sample.ts";
import { openKeyRing } from "./key-ring.ts";
import { isSignedBy, signatureOf } from "./signature.ts";

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "perdure-keys-"));
});
afterEach(() => rm(home, { recursive: true }));

test("the host's keys are made once, for several openers at a time, and only their owner reads them", async () => {
  const rings = await Promise.all(Array.from({ length: 8 }, () => openKeyRing(home)));
  expect(new Set(rings.map(({ signing }) => signing.id)).size).toBe(1);
  expect((await readdir(join(home, "keys"))).sort()).toEqual(["host-signing.pem", "host.key"]);
  for (const name of ["host.key", "host-signing.pem"]) {
    expect((await stat(join(home, "keys", name))).mode & 0o777).toBe(0o600);
  }
  const [first, last] = [rings[0]?.signing, (await openKeyRing(home)).signing];
  if (first === undefined) throw new Error("There is no key ring");
  expect(isSignedBy(last, "text", signatureOf(first, "text"))).toBe(true);
  expect(isSignedBy(last, "other", signatureOf(first, "text"))).toBe(false);
});

test("a host key that others may read, or that is none, is refused", async () => {
  await openKeyRing(home);
  const path = join(home, "keys", "host.key");
  await chmod(path, 0o640);
  await expect(openKeyRing(home)).rejects.toMatchObject({ code: "host_not_ready" });
  await chmod(path, 0o600);
  await writeFile(path, "short");
  await expect(openKeyRing(home)).rejects.toMatchObject({ code: "host_not_ready" });
});

test("an agent's key is made once, is wrapped for its agent, and is gone when destroyed", async () => {
  const ring = await openKeyRing(home);
  const path = join(home, "key.wrapped");
  const agent = newAgentId();
  await Promise.all([ring.createAgentKey(path, agent), ring.createAgentKey(path, agent)]);
  const key = await ring.agentKey(path, agent);
  expect(key).toHaveLength(32);
  await ring.createAgentKey(path, agent);
  expect(await (await openKeyRing(home)).agentKey(path, agent)).toEqual(key);
  expect((await readFile(path)).includes(Buffer.from(key))).toBe(false);
  const missing = { code: "checkpoint_key_missing" };
  await expect(ring.agentKey(path, newAgentId())).rejects.toMatchObject(missing);
  const wrapped = await readFile(path);
  for (let at = 0; at < wrapped.length; at++) {
    const broken = Buffer.from(wrapped);
    broken[at] = (broken[at] ?? 0) ^ 0x10;
    await writeFile(path, broken);
    await expect(ring.agentKey(path, agent)).rejects.toMatchObject(missing);
  }
  await ring.destroyAgentKey(path);
  await ring.destroyAgentKey(path);
  await expect(ring.agentKey(path, agent)).rejects.toMatchObject(missing);
  expect(await readdir(home)).toEqual(["keys"]);
});
