/** The part of the StateStore suite about requests that are kept for their idempotency keys. */
import { expect, it } from "vitest";
import type { KeptRequest } from "../../packages/daemon/src/core/kept-request.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";

const bounds = { sinceMs: 0, ofPrincipalMax: 100, countMax: 100, bytesMax: 1e9 };

export function sampleRequest(key: string, part: Partial<KeptRequest> = {}): KeptRequest {
  return { principal: "local", key, digest: "d".repeat(64), atMs: 1000, answer: null, ...part };
}

export function requestContract(store: () => StateStore): void {
  const insert = (request: KeptRequest, sinceMs = 0): Promise<void> =>
    store().commit([{ kind: "insert-request", request, sinceMs }]);
  const kept = async (...keys: string[]): Promise<string[]> => {
    const found = await Promise.all(keys.map((key) => store().request("local", key)));
    return keys.filter((_, i) => found[i] !== null);
  };

  it("keeps a request, then its answer, and lets it go", async () => {
    const request = sampleRequest("k1");
    await insert(request);
    expect(await store().request("local", "k1")).toEqual(request);
    expect(await store().request("other", "k1")).toBeNull();
    for (const answer of [
      { status: 204, body: null },
      { status: 200, body: '{"ü":1}' },
    ]) {
      await store().commit([{ kind: "answer-request", principal: "local", key: "k1", answer }]);
      expect(await store().request("local", "k1")).toEqual({ ...request, answer });
    }
    const release = { kind: "release-request", principal: "local", key: "k1" } as const;
    await store().commit([release]);
    await store().commit([release]);
    expect(await store().request("local", "k1")).toBeNull();
    const answer = { status: 200, body: "late" };
    await store().commit([{ kind: "answer-request", principal: "local", key: "k1", answer }]);
    expect(await store().request("local", "k1")).toBeNull();
  });

  it("refuses a key twice, of one principal, unless it is old", async () => {
    await insert(sampleRequest("k1"));
    const again = sampleRequest("k1", { digest: "e".repeat(64), atMs: 2000 });
    await expect(insert(again, 1000)).rejects.toMatchObject({ code: "idempotency_conflict" });
    expect(await store().request("local", "k1")).toEqual(sampleRequest("k1"));
    await insert(sampleRequest("k1", { principal: "other" }));
    await insert(again, 1001);
    expect(await store().request("local", "k1")).toEqual(again);
  });

  it("lets one of many that come at once with a key have it", async () => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 10 }, (_, i) => insert(sampleRequest("k1", { atMs: 1000 + i }))),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  it("collects what is old, and the oldest of what is too many or too large", async () => {
    const answer = { status: 200, body: "ü".repeat(50) };
    for (let i = 1; i <= 6; i++) await insert(sampleRequest(`k${i}`, { atMs: i * 1000, answer }));
    await insert(sampleRequest("k7", { principal: "other", atMs: 500 }));
    const keys = ["k1", "k2", "k3", "k4", "k5", "k6"];
    const collect = (part: Partial<typeof bounds>): Promise<void> =>
      store().commit([{ kind: "collect-requests", bounds: { ...bounds, ...part } }]);
    await collect({});
    expect(await kept(...keys)).toEqual(keys);
    expect(await store().request("other", "k7")).not.toBeNull();
    await collect({ sinceMs: 2000 });
    expect(await kept(...keys)).toEqual(keys.slice(1));
    expect(await store().request("other", "k7")).toBeNull();
    await collect({ ofPrincipalMax: 4 });
    expect(await kept(...keys)).toEqual(keys.slice(2));
    await collect({ countMax: 3 });
    expect(await kept(...keys)).toEqual(keys.slice(3));
    await collect({ bytesMax: 200 });
    expect(await kept(...keys)).toEqual(keys.slice(4));
  });

  it("counts each principal's own, and all together", async () => {
    for (const principal of ["one", "two", "one", "two", "one"]) {
      const key = `${principal}-${Math.random()}`;
      await insert(sampleRequest(key, { principal }));
    }
    await insert(sampleRequest("last", { principal: "one" }));
    await store().commit([{ kind: "collect-requests", bounds: { ...bounds, ofPrincipalMax: 1 } }]);
    expect(await store().request("one", "last")).not.toBeNull();
  });
}
