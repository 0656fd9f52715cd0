import { expect, test } from "vitest";
import { ownUsers, sharedUser } from "./isolation.ts";

test("no uid is given twice while it is in use", async () => {
  const isolation = ownUsers({ first: 1_950_000_000, count: 4 }, () => 7);
  const taken = [];
  for (const tenant of ["a", "a", "b"]) taken.push(await isolation.take(tenant));
  const uids = taken.map(({ credentials }) => credentials.uid);
  expect(new Set(uids)).toEqual(new Set([1_950_000_001, 1_950_000_002, 1_950_000_003]));
  expect(taken.every(({ credentials }) => credentials.gid === credentials.uid)).toBe(true);
  await expect(isolation.take("a")).rejects.toThrow("in use");
  taken[1]?.giveBack();
  expect((await isolation.take("a")).credentials.uid).toBe(uids[1]);
});

test("a uid under which any process of the host runs is passed over", async () => {
  const uid = process.getuid?.() ?? 0;
  if (uid === 0) {
    // Root's range would begin at -1: the rule is the same for whoever runs this.
    const isolation = ownUsers({ first: -1, count: 3 }, () => 7);
    expect((await isolation.take("a")).credentials.uid).toBe(1);
    return;
  }
  const isolation = ownUsers({ first: uid - 1, count: 3 }, () => 7);
  expect((await isolation.take("a")).credentials.uid).toBe(uid + 1);
});

test("without a range all run as the daemon's user", async () => {
  const { credentials } = await sharedUser().take("a");
  expect(credentials.uid).toBe(process.getuid?.());
});
