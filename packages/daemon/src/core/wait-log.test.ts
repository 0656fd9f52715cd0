/** Which timers inside are waits that an agent is woken for. */
import { expect, test } from "vitest";
import { WaitLog } from "./wait-log.ts";

const AGE_MS = 30_000;
const timer = (dueInMs: number) => ({ pid: 1, name: "sleep", dueInMs });

test("a timer that keeps its due time is a wait once it was there for long enough", () => {
  const log = new WaitLog();
  log.look([timer(300_000)], 0);
  expect(log.firstDueMs(0, AGE_MS)).toBeNull();
  log.look([timer(285_010)], 15_000);
  expect(log.firstDueMs(15_000, AGE_MS)).toBeNull();
  log.look([timer(269_980)], 30_000);
  expect(log.firstDueMs(30_000, AGE_MS)).toBeCloseTo(300_000, -3);
});

test("a loop that sleeps for a moment is polling, however often it is looked at", () => {
  const log = new WaitLog();
  for (let atMs = 0; atMs <= 120_000; atMs += 15_000) {
    log.look([timer(1_000 - (atMs % 700))], atMs);
    expect(log.firstDueMs(atMs, AGE_MS)).toBeNull();
  }
});

test("of several waits the soonest counts, and one that has ended is forgotten", () => {
  const log = new WaitLog();
  log.look([timer(500_000), timer(200_000)], 0);
  log.look([timer(460_000), timer(160_000)], 40_000);
  expect(log.firstDueMs(40_000, AGE_MS)).toBe(200_000);
  log.look([timer(450_000)], 50_000);
  expect(log.firstDueMs(50_000, AGE_MS)).toBe(500_000);
  log.look([], 60_000);
  expect(log.firstDueMs(60_000, AGE_MS)).toBeNull();
});

test("a wait that is over is none to be woken for", () => {
  const log = new WaitLog();
  log.look([timer(40_000)], 0);
  log.look([timer(5_000)], 35_000);
  expect(log.firstDueMs(35_000, AGE_MS)).toBe(40_000);
  expect(log.firstDueMs(40_001, AGE_MS)).toBeNull();
});

test("before there was time to look, one that is due late is taken for a wait", () => {
  const log = new WaitLog();
  log.look([timer(1_000), timer(299_000)], 0);
  expect(log.firstDueMs(0, AGE_MS, AGE_MS)).toBe(299_000);
});

test("as many timers as a guest can show are looked at without trouble", () => {
  const log = new WaitLog();
  const many = Array.from({ length: 5_000 }, (_, i) => timer(60_000 + i));
  log.look(many, 0);
  log.look(
    many.map(({ dueInMs }) => timer(dueInMs - 31_000)),
    31_000,
  );
  expect(log.firstDueMs(31_000, AGE_MS)).toBe(60_000);
});
