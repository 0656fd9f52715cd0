/** The part of the StateStore suite about API keys. */
import { expect, it } from "vitest";
import { keyLimits, makeId } from "@perdure/protocol";
import type { ApiKey } from "../../packages/daemon/src/core/api-key.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";

let serial = 0;

export function sampleKey(name: string, part: Partial<ApiKey> = {}): ApiKey {
  const random = new Uint8Array(10);
  new DataView(random.buffer).setUint32(6, ++serial);
  return {
    id: makeId("ak", 1_700_000_000_000, random),
    name,
    tenant: "default",
    scope: "use",
    agents: ["a1", "a2"],
    createdAtMs: 1_700_000_000_000,
    expiresAtMs: null,
    lastUsedAtMs: null,
    secretDigest: "e".repeat(64),
    ...part,
  };
}

export function keyContract(store: () => StateStore): void {
  const insert = (...keys: ApiKey[]): Promise<void> =>
    store().commit(keys.map((key) => ({ kind: "insert-key", key })));
  const names = async (after: string, limit: number, tenant = "default"): Promise<string[]> =>
    (await store().keys({ tenant, after, limit })).map(({ name }) => name);

  it("gives back a key as it was stored, by id and name, until it is deleted", async () => {
    const key = sampleKey("k1", { expiresAtMs: 5, agents: null });
    await insert(key);
    expect(await store().key(key.id)).toEqual(key);
    expect(await store().keyByName("default", "k1")).toEqual(key);
    expect(await store().keyByName("other", "k1")).toBeNull();
    await store().commit([{ kind: "delete-key", id: key.id }]);
    await store().commit([{ kind: "delete-key", id: key.id }]);
    expect(await store().key(key.id)).toBeNull();
    expect(await store().keyByName("default", "k1")).toBeNull();
    await insert(sampleKey("k1"));
  });

  it("notes when a key was used last, and forgets nothing else of it", async () => {
    const key = sampleKey("k1");
    await insert(key);
    await store().commit([{ kind: "touch-key", id: key.id, atMs: 77 }]);
    const touched = { ...key, lastUsedAtMs: 77 };
    expect(await store().key(key.id)).toEqual(touched);
    expect(await store().keys({ tenant: "default", after: "", limit: 9 })).toEqual([touched]);
    await store().commit([{ kind: "touch-key", id: sampleKey("none").id, atMs: 77 }]);
  });

  it("refuses a name twice within a tenant", async () => {
    await insert(sampleKey("k1"));
    await expect(insert(sampleKey("k1"))).rejects.toMatchObject({ code: "key_exists" });
    await insert(sampleKey("k1", { tenant: "other" }));
  });

  it("lists by name within a tenant, page by page", async () => {
    await insert(...["b", "a", "c"].map((name) => sampleKey(name)));
    await insert(sampleKey("d", { tenant: "other" }));
    expect(await names("", 9)).toEqual(["a", "b", "c"]);
    expect(await names("a", 1)).toEqual(["b"]);
    expect(await names("c", 9)).toEqual([]);
    expect(await names("", 9, "other")).toEqual(["d"]);
  });

  it("holds no more than its bound of one tenant", async () => {
    const all = Array.from({ length: keyLimits.keysMax }, (_, i) => sampleKey(`k${i}`));
    await insert(...all);
    await expect(insert(sampleKey("more"))).rejects.toMatchObject({ code: "too_many" });
    await insert(sampleKey("more", { tenant: "other" }));
    const [first] = all;
    if (first !== undefined) await store().commit([{ kind: "delete-key", id: first.id }]);
    await insert(sampleKey("more"));
  });
}
