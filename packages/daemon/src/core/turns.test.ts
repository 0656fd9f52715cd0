import { expect, test } from "vitest";
import type { Clock } from "./ports/clock.ts";
import { Turns } from "./turns.ts";

/** A clock whose time passes by `pass` alone. */
function handClock(): Clock & { pass(ms: number): Promise<void> } {
  let now = 0;
  const waits = new Set<{ atMs: number; done: () => void }>();
  return {
    nowMs: () => now,
    monotonicMs: () => now,
    randomBytes: (count) => new Uint8Array(count),
    wait: (ms, signal) =>
      new Promise((resolve, reject) => {
        const wait = { atMs: now + ms, done: resolve };
        waits.add(wait);
        signal?.addEventListener("abort", () => {
          waits.delete(wait);
          reject(new Error("aborted"));
        });
      }),
    async pass(ms) {
      now += ms;
      for (const wait of waits) if (wait.atMs <= now) wait.done();
      await settled();
    },
  };
}

/** Everything that can go on without time has gone on. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function rig(atOnce: number, lendMs = 1000) {
  const clock = handClock();
  const turns = new Turns(clock, { atOnce, lendMs });
  const begun: number[] = [];
  const ends: PromiseWithResolvers<undefined>[] = [];
  const add = (count: number): Promise<unknown>[] =>
    Array.from({ length: count }, () => {
      const i = ends.length;
      const end = Promise.withResolvers<undefined>();
      ends.push(end);
      return turns.run(async () => {
        begun.push(i);
        await end.promise;
      });
    });
  return { clock, begun, add, end: (i: number) => ends[i]?.resolve(undefined), ends };
}

test("as many go on as may, the others in the order in which they came", async () => {
  const { begun, add, end } = rig(2);
  const runs = add(4);
  await settled();
  expect(begun).toEqual([0, 1]);
  end(1);
  await settled();
  expect(begun).toEqual([0, 1, 2]);
  for (const i of [0, 2, 3]) end(i);
  await Promise.all(runs);
  expect(begun).toEqual([0, 1, 2, 3]);
});

test("work that fails gives its turn back", async () => {
  const { begun, add, ends } = rig(1);
  const [first] = add(2);
  ends[0]?.reject(new Error("no"));
  await expect(first).rejects.toThrow("no");
  await settled();
  expect(begun).toEqual([0, 1]);
});

test("work that hangs keeps the next one out for a while only, and gives back nothing twice", async () => {
  const { clock, begun, add, end } = rig(1, 1000);
  const runs = add(3);
  await settled();
  await clock.pass(999);
  expect(begun).toEqual([0]);
  await clock.pass(1);
  expect(begun).toEqual([0, 1]);
  // The first one's turn is gone already: that it ends lets nobody in.
  end(0);
  await settled();
  expect(begun).toEqual([0, 1]);
  end(1);
  await settled();
  expect(begun).toEqual([0, 1, 2]);
  end(2);
  await Promise.all(runs);
});

test("what comes when all are done begins at once", async () => {
  const { begun, add, end } = rig(1);
  const [first] = add(1);
  end(0);
  await first;
  const [second] = add(1);
  await settled();
  expect(begun).toEqual([0, 1]);
  end(1);
  await second;
});
