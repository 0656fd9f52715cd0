import { expect, test } from "vitest";
import { Seats } from "./seats.ts";

/** Time that a test lets pass. */
function handClock() {
  const waits: (() => void)[] = [];
  return {
    pass: () => {
      for (const wait of waits.splice(0)) wait();
    },
    wait: (_: number, signal?: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        waits.push(resolve);
        signal?.addEventListener("abort", () => reject(new Error("aborted")));
      }),
  };
}

test("whoever finds none free gets the next, in the order they came", async () => {
  const seats = new Seats(handClock(), 1, 10);
  expect(await seats.enter()).toBe(true);
  const order: number[] = [];
  const waiting = [1, 2].map((number) => seats.enter().then(() => order.push(number)));
  seats.leave();
  await waiting[0];
  expect(order).toEqual([1]);
  seats.leave();
  await waiting[1];
  seats.leave();
  expect(await seats.enter()).toBe(true);
});

test("whoever waits too long has none, and keeps none from others", async () => {
  const clock = handClock();
  const seats = new Seats(clock, 1, 10);
  await seats.enter();
  const waits = seats.enter();
  clock.pass();
  expect(await waits).toBe(false);
  seats.leave();
  expect(await seats.enter()).toBe(true);
});
