import { expect, test } from "vitest";
import { usedInodes } from "./ext4.ts";

test("inodes in use are the root and those that no group calls free", () => {
  const dump = `Inode count:              20
Free inodes:              7
Group 0: (Blocks 0-1)
  Free inodes: 13-15, 17
Group 1: (Blocks 2-3)
  Free inodes: 18-20
`;
  expect(usedInodes(dump)).toEqual([2, 11, 12, 16]);
});
