/** The keeper by itself, over both stores; test/…/server.test.ts has the header and the routes. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { apiLimits, PerdureError } from "@perdure/protocol";
import { createMemoryStateStore } from "../../../../test/contract/memory-state-store.ts";
import type { KeptAnswer } from "../core/kept-request.ts";
import type { StateStore } from "../core/ports/state-store.ts";
import { openSqliteStateStore } from "../state/sqlite/sqlite-state-store.ts";
import { RequestKeeper } from "./request-keeper.ts";
import type { KeyedRequest } from "./request-keeper.ts";

const ok = (body: string): KeptAnswer => ({ status: 200, body });

function keyed(key: string, digest = "one", part: Partial<KeyedRequest> = {}): KeyedRequest {
  return {
    principal: "local",
    key,
    digest: () => Promise.resolve(digest),
    digestNow: digest,
    again: false,
    keepsErrors: true,
    keepsAnswer: true,
    ...part,
  };
}

let nowMs: number;
let warnings: string[];
let runs: number;
beforeEach(() => {
  nowMs = 1_700_000_000_000;
  warnings = [];
  runs = 0;
});

function keeperOver(state: Pick<StateStore, "commit" | "request">): RequestKeeper {
  const log = (_level: string, message: string): void => void warnings.push(message);
  return new RequestKeeper({ state, clock: { nowMs: () => nowMs }, log });
}

/** Counts, and answers what it was told to. */
const work =
  (answer: KeptAnswer | PerdureError | null = ok("1")) =>
  (): Promise<KeptAnswer | null> => {
    runs += 1;
    return answer instanceof PerdureError ? Promise.reject(answer) : Promise.resolve(answer);
  };

/** A store that fails, or stands still, where `intercept` says so. */
function intercepted(
  store: StateStore,
  intercept: (kind: string) => Promise<void> | void,
): Pick<StateStore, "commit" | "request"> {
  return {
    commit: async (changes) => {
      await intercept(changes[0]?.kind ?? "");
      await store.commit(changes);
    },
    request: (principal, key) => store.request(principal, key),
  };
}

describe("a key that was sent before", () => {
  it("gives the answer again and does nothing", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    expect(await keeper.run(keyed("k"), work())).toEqual({ answer: ok("1"), replayed: false });
    for (let i = 0; i < 3; i++) {
      expect(await keeper.run(keyed("k"), work())).toEqual({ answer: ok("1"), replayed: true });
    }
    expect(await keeper.run(keyed("k", "one", { principal: "p2" }), work(ok("2")))).toEqual({
      answer: ok("2"),
      replayed: false,
    });
    expect(runs).toBe(2);
  });

  it("is refused with another request, whether that has ended or not", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const gate = Promise.withResolvers<KeptAnswer>();
    const first = keeper.run(keyed("k"), () => gate.promise);
    const conflict = { code: "idempotency_conflict", status: 422, retry: "never" };
    await expect(keeper.run(keyed("k", "two"), work())).rejects.toMatchObject(conflict);
    gate.resolve(ok("1"));
    await first;
    await expect(keeper.run(keyed("k", "two"), work())).rejects.toMatchObject(conflict);
    expect(runs).toBe(0);
  });

  it("waits for the one that is under way, however many there are", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const gate = Promise.withResolvers<KeptAnswer>();
    const slow = (): Promise<KeptAnswer> => {
      runs += 1;
      return gate.promise;
    };
    const all = Array.from({ length: 20 }, () => keeper.run(keyed("k"), slow));
    gate.resolve(ok("1"));
    const answers = await Promise.all(all);
    expect(answers.map(({ replayed }) => replayed)).toEqual(
      Array.from({ length: 20 }, (_, i) => i > 0),
    );
    expect(runs).toBe(1);
  });

  it("gives errors again, but does what was safe to do again", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const never = new PerdureError("agent_exists", "Cannot create it");
    await expect(keeper.run(keyed("never"), work(never))).rejects.toBe(never);
    const { answer, replayed } = await keeper.run(keyed("never"), work());
    expect(replayed).toBe(true);
    expect(answer?.status).toBe(409);
    expect(JSON.parse(answer?.body ?? "")).toEqual(never.toJSON());
    const safe = new PerdureError("disk_full", "Cannot create it");
    await expect(keeper.run(keyed("safe"), work(safe))).rejects.toBe(safe);
    expect(await keeper.run(keyed("safe"), work())).toEqual({ answer: ok("1"), replayed: false });
    const defect = new TypeError("secret=hunter2");
    await expect(keeper.run(keyed("defect"), () => Promise.reject(defect))).rejects.toBe(defect);
    const again = await keeper.run(keyed("defect"), work());
    expect(again.answer?.body).toContain('"internal"');
    expect(again.answer?.body).not.toContain("hunter2");
    expect(runs).toBe(3);
  });

  it("is forgotten after a day", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    await keeper.run(keyed("k"), work());
    nowMs += apiLimits.idempotencyKeptMs;
    expect((await keeper.run(keyed("k"), work())).replayed).toBe(true);
    nowMs += 1;
    expect((await keeper.run(keyed("k", "two"), work())).replayed).toBe(false);
  });

  it("is collected when there are many, the newest stay", async () => {
    const state = createMemoryStateStore();
    const keeper = keeperOver(state);
    await keeper.run(keyed("old"), work());
    nowMs += apiLimits.idempotencyKeptMs + 1;
    for (let i = 0; i < 300; i++) await keeper.run(keyed(`k${i}`), work());
    expect(await state.request("local", "old")).toBeNull();
    expect(await state.request("local", "k299")).not.toBeNull();
  });

  it("has no answer where that was too long, a secret, or written as a stream", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const long = ok("x".repeat(apiLimits.idempotencyAnswerBytesMax + 1));
    const unfinished = { code: "idempotency_unfinished", status: 409, retry: "check" };
    expect((await keeper.run(keyed("long"), work(long))).answer).toEqual(long);
    await expect(keeper.run(keyed("long"), work())).rejects.toMatchObject(unfinished);
    const secret = keyed("secret", "one", { keepsAnswer: false });
    expect((await keeper.run(secret, work())).replayed).toBe(false);
    await expect(keeper.run(secret, work())).rejects.toMatchObject(unfinished);
    expect(await keeper.run(keyed("stream"), work(null))).toEqual({
      answer: null,
      replayed: false,
    });
    await expect(keeper.run(keyed("stream"), work())).rejects.toMatchObject(unfinished);
    expect(runs).toBe(3);
  });
});

describe("a request that is idempotent itself", () => {
  const again = (key: string, digest = "one") => keyed(key, digest, { again: true });

  it("is answered without waiting for the disk, and kept all the same", async () => {
    const state = createMemoryStateStore();
    const gate = Promise.withResolvers<undefined>();
    const keeper = keeperOver(intercepted(state, () => gate.promise));
    expect((await keeper.run(again("k"), work())).replayed).toBe(false);
    gate.resolve(undefined);
    await expect.poll(() => state.request("local", "k")).not.toBeNull();
    expect((await keeper.run(again("k"), work())).replayed).toBe(true);
    await expect(keeper.run(again("k", "two"), work())).rejects.toMatchObject({
      code: "idempotency_conflict",
    });
  });
});

describe("a body that is a stream", () => {
  /** As the API makes it for an upload: a digest for which the body is read. */
  function upload(key: string, content: string, read: string[]): KeyedRequest {
    const digest = (): Promise<string> => {
      read.push(content);
      return Promise.resolve(content);
    };
    return keyed(key, "", { digest, digestNow: null, again: true, keepsErrors: false });
  }

  it("is compared after it was read, and read only when the first has ended", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const read: string[] = [];
    const gate = Promise.withResolvers<KeptAnswer>();
    const first = keeper.run(upload("k", "a", read), () => gate.promise);
    const second = keeper.run(upload("k", "a", read), work());
    const third = keeper.run(upload("k", "b", read), work());
    const refused = expect(third).rejects.toMatchObject({ code: "idempotency_conflict" });
    await new Promise((resolve) => setImmediate(resolve));
    expect(read).toEqual([]);
    gate.resolve(ok("1"));
    expect((await first).replayed).toBe(false);
    expect((await second).replayed).toBe(true);
    await refused;
    expect(runs).toBe(0);
  });

  it("is taken again where the first one failed", async () => {
    const keeper = keeperOver(createMemoryStateStore());
    const read: string[] = [];
    const gate = Promise.withResolvers<KeptAnswer>();
    const first = keeper.run(upload("k", "a", read), () => gate.promise);
    const second = keeper.run(upload("k", "a", read), work());
    gate.reject(new PerdureError("cancelled", "The uploader went away"));
    await expect(first).rejects.toMatchObject({ code: "cancelled" });
    expect((await second).replayed).toBe(false);
    expect(runs).toBe(1);
  });
});

describe("a disk that is full", () => {
  const full = (): never => {
    throw new PerdureError("disk_full", "Cannot store the change");
  };

  it("refuses no request, and keeps answers in memory", async () => {
    const keeper = keeperOver(intercepted(createMemoryStateStore(), full));
    for (const again of [false, true]) {
      const request = keyed(`k${again}`, "one", { again });
      expect((await keeper.run(request, work())).replayed).toBe(false);
      expect((await keeper.run(request, work())).replayed).toBe(true);
    }
    expect(runs).toBe(2);
  });

  it("keeps no more in memory than its bound", async () => {
    const keeper = keeperOver(intercepted(createMemoryStateStore(), full));
    for (let i = 0; i < 1001; i++) await keeper.run(keyed(`k${i}`), work());
    expect((await keeper.run(keyed("k1"), work())).replayed).toBe(true);
    expect((await keeper.run(keyed("k0"), work())).replayed).toBe(false);
  });
});

describe("a store that fails", () => {
  it("lets nothing be done where the key could not be taken", async () => {
    const fail = (): never => {
      throw new PerdureError("store_failed", "No");
    };
    const keeper = keeperOver(intercepted(createMemoryStateStore(), fail));
    await expect(keeper.run(keyed("k"), work())).rejects.toMatchObject({ code: "store_failed" });
    expect(runs).toBe(0);
  });

  it("does not take back an answer that could not be kept, and says so in the log", async () => {
    const state = createMemoryStateStore();
    const keeper = keeperOver(
      intercepted(state, (kind) => {
        if (kind === "answer-request") throw new PerdureError("store_failed", "No");
      }),
    );
    expect((await keeper.run(keyed("k"), work())).answer).toEqual(ok("1"));
    expect(warnings).toHaveLength(1);
    await expect(keeper.run(keyed("k"), work())).rejects.toMatchObject({
      code: "idempotency_unfinished",
    });
  });
});

describe("a daemon that is started again", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "perdure-keeper-"));
  });
  afterEach(() => rm(folder, { recursive: true }));
  const open = (): Promise<StateStore> => openSqliteStateStore({ path: join(folder, "state.db") });

  it("gives the answers of the one before, and knows what that had begun", async () => {
    const before = await open();
    const keeper = keeperOver(before);
    await keeper.run(keyed("ended"), work());
    await keeper.run(keyed("again", "one", { again: true }), work());
    const [begun] = [keeper.run(keyed("begun"), () => new Promise(() => undefined))];
    void begun;
    void keeper.run(
      keyed("again-begun", "one", { again: true }),
      () => new Promise(() => undefined),
    );
    await expect.poll(() => before.request("local", "begun")).not.toBeNull();
    await before.close();

    const after = await open();
    const next = keeperOver(after);
    expect(await next.run(keyed("ended"), work())).toEqual({ answer: ok("1"), replayed: true });
    await expect(next.run(keyed("ended", "two"), work())).rejects.toMatchObject({
      code: "idempotency_conflict",
    });
    expect((await next.run(keyed("again", "one", { again: true }), work())).replayed).toBe(true);
    await expect(next.run(keyed("begun"), work())).rejects.toMatchObject({
      code: "idempotency_unfinished",
      retry: "check",
    });
    await expect(next.run(keyed("begun", "two"), work())).rejects.toMatchObject({
      code: "idempotency_conflict",
    });
    runs = 0;
    const repeated = keyed("again-begun", "one", { again: true });
    expect((await next.run(repeated, work())).replayed).toBe(false);
    expect(runs).toBe(1);
    await next.settled();
    await after.close();
  });

  it("waits for what is under way before it closes", async () => {
    const store = await open();
    const keeper = keeperOver(store);
    const gate = Promise.withResolvers<KeptAnswer>();
    const running = keeper.run(keyed("k"), () => gate.promise);
    let settled = false;
    const done = keeper.settled().then(() => (settled = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(settled).toBe(false);
    gate.resolve(ok("1"));
    await running;
    await done;
    expect((await store.request("local", "k"))?.answer).toEqual(ok("1"));
    await store.close();
  });
});
