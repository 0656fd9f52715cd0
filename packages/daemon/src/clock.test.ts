import { expect, it } from "vitest";
import { createSystemClock } from "./clock.ts";

const clock = createSystemClock();

it("waits at least as long as it was told", async () => {
  const began = clock.monotonicMs();
  await clock.wait(20);
  expect(clock.monotonicMs() - began).toBeGreaterThanOrEqual(20);
  await clock.wait(-5);
});

it("ends a wait with the signal's reason, before and during it", async () => {
  const reason = new Error("enough");
  await expect(clock.wait(60_000, AbortSignal.abort(reason))).rejects.toBe(reason);
  const controller = new AbortController();
  const waiting = clock.wait(60_000, controller.signal);
  controller.abort(reason);
  await expect(waiting).rejects.toBe(reason);
});

it("waits longer than one timer can hold", async () => {
  const controller = new AbortController();
  const waiting = clock.wait(2 ** 33, controller.signal);
  const early = await Promise.race([waiting.then(() => "early"), clock.wait(30)]);
  expect(early).toBeUndefined();
  controller.abort();
  await expect(waiting).rejects.toThrow();
});

it("gives as many random bytes as asked", () => {
  expect(clock.randomBytes(10)).toHaveLength(10);
  expect(clock.randomBytes(32)).not.toEqual(clock.randomBytes(32));
});
