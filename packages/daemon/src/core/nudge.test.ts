/** A wait that ends early for a word, whenever the word comes. */
import { expect, test } from "vitest";
import { createSystemClock } from "../clock.ts";
import { Nudge } from "./nudge.ts";

const clock = createSystemClock();
const HOUR_MS = 3_600_000;
const never = new AbortController().signal;

test.each([HOUR_MS, Infinity])("a wait of %d ms ends by a word", async (ms) => {
  const nudge = new Nudge(clock);
  const rest = nudge.arm(never)(ms);
  nudge.say();
  await rest;
  expect(nudge.isSaid).toBe(true);
});

test("a word that came before the wait began counts, one from before it was armed does not", async () => {
  const nudge = new Nudge(clock);
  const early = nudge.arm(never);
  nudge.say();
  await early(HOUR_MS);
  nudge.arm(never);
  expect(nudge.isSaid).toBe(false);
});

test("a wait ends by itself, and by the end of whoever waits", async () => {
  const nudge = new Nudge(clock);
  await nudge.arm(never)(1);
  expect(nudge.isSaid).toBe(false);
  const stop = new AbortController();
  const rest = nudge.arm(stop.signal)(Infinity);
  stop.abort();
  await rest;
});
