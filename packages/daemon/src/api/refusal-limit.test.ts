import { expect, it } from "vitest";
import { keyLimits } from "@perdure/protocol";
import { RefusalLimit } from "./refusal-limit.ts";

const { refusalsMax, refusalEveryMs } = keyLimits;

it("lets a few through at once, then one now and then, of each address", () => {
  const limit = new RefusalLimit();
  for (let i = 0; i < refusalsMax; i++) expect(limit.note("10.0.0.1", 1000)).toBe(0);
  expect(limit.note("10.0.0.1", 1000)).toBe(refusalEveryMs);
  expect(limit.note("10.0.0.1", 1000 + refusalEveryMs / 2)).toBe(refusalEveryMs / 2);
  expect(limit.note("10.0.0.2", 1000)).toBe(0);
  expect(limit.note("10.0.0.1", 1000 + refusalEveryMs)).toBe(0);
  expect(limit.note("10.0.0.1", 1000 + refusalEveryMs)).toBeGreaterThan(0);
  const later = 1000 + 100 * refusalsMax * refusalEveryMs;
  for (let i = 0; i < refusalsMax; i++) expect(limit.note("10.0.0.1", later)).toBe(0);
  expect(limit.note("10.0.0.1", later)).toBeGreaterThan(0);
});

it("is not refilled by a clock that steps back", () => {
  const limit = new RefusalLimit();
  for (let i = 0; i <= refusalsMax; i++) limit.note("10.0.0.1", 1_000_000);
  expect(limit.note("10.0.0.1", 0)).toBeGreaterThan(0);
  expect(limit.note("10.0.0.1", 1)).toBeGreaterThan(0);
});

it.each([
  ["2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true],
  ["2001:db8:1:2::1", "2001:db8:1:3::1", false],
  ["2001:db8::1", "2001:db8:0:0:5::2", true],
  ["::ffff:10.0.0.1", "::ffff:10.0.0.2", false],
  ["fe80::1%eth0", "fe80::2%eth0", true],
])("takes %s and %s for one: %s", (one, two, same) => {
  const limit = new RefusalLimit();
  for (let i = 0; i < refusalsMax; i++) limit.note(one, 0);
  expect(limit.note(two, 0) > 0).toBe(same);
});

it("remembers no more addresses than its bound", () => {
  const limit = new RefusalLimit();
  for (let i = 0; i <= refusalsMax; i++) limit.note("10.0.0.1", 0);
  for (let i = 0; i < 10_000; i++) limit.note(`10.1.${i >> 8}.${i & 255}`, 0);
  expect(limit.note("10.0.0.1", 0)).toBe(0);
});
