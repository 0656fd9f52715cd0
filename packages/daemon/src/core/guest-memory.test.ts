import { expect, test } from "vitest";
import { droppableBytes } from "./guest-memory.ts";
import type { GuestMemory } from "./ports/guest-link.ts";

const MIB = 1024 * 1024;

const stats = (anon: number, shmem: number, cached: number): GuestMemory =>
  ({ anonBytes: anon * MIB, shmemBytes: shmem * MIB, cachedBytes: cached * MIB }) as GuestMemory;

test.each([
  ["fresh: the cache is the base's", stats(1, 0, 40), 2, 1],
  ["after much reading and writing of files", stats(1, 0, 90), 60, 59],
  ["programs that hold memory", stats(64, 0, 45), 84, 20],
  ["dropped before: what differs are pages of zeros", stats(1, 0, 4), 50, 4],
  ["shared memory counts as cache inside and is held", stats(1, 100, 140), 110, 9],
])("%s", (_, inside, privateMiB, expected) => {
  expect(droppableBytes(inside, privateMiB * MIB)).toBe(expected * MIB);
});
