import { expect, test } from "vitest";
import { heldBytes } from "./worked.ts";

test("what programs hold is anonymous and shared memory", () => {
  expect(heldBytes("MemTotal: 9 kB\nAnonPages:     1000 kB\nShmem:   24 kB\n")).toBe(1024 * 1024);
  expect(() => heldBytes("MemTotal: 9 kB\n")).toThrow(/AnonPages/);
});
