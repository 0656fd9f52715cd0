/**
 * Back to a checkpoint that is kept. Witnesses inside: a program that counts in memory, files in memory
 * and on disk, random numbers; outside: the host's process table and the files of the agent.
 */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { away, expectRightClock } from "./guest-clock.ts";
import { crash, machinesOf } from "./host-view.ts";

const under = new DaemonUnderTest();

beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

const write = (name: string, text: string): Promise<string> =>
  under.sh(name, `printf %s ${text} > /home/user/file; sync; printf %s ${text} > /dev/shm/file`);
const read = (name: string): Promise<string> =>
  under.sh(name, "cat /home/user/file; printf ' '; cat /dev/shm/file 2>/dev/null || true");

function packs(agentId: string): string[] {
  return readdirSync(join(under.home, "agents", agentId, "packs"));
}

describe("restore", () => {
  let id: string;

  test("C01 memory, disk and running programs are those of the cut; the clock is not", async () => {
    const { client } = under;
    ({ id } = await client.create({ name: "r1" }));
    await startCounter(under, "r1");
    await write("r1", "older");
    const kept = await client.checkpoint("r1", { name: "kept" });
    const then = await readCount(under, "r1");
    await write("r1", "newer");
    await until("the counter to go on", async () => {
      return (await readCount(under, "r1")).count > then.count + 50;
    });
    const before = await readCount(under, "r1");
    await away();

    const { report } = await client.restore("r1", "kept");
    await expectRightClock(under, "r1");
    expect(report).toMatchObject({
      route: "restore",
      generation: 2,
      cut: { checkpoint: kept.id, memory: true, disk: "clean" },
      otherCut: { memory: true, keptAs: "before-restore-1" },
    });
    expect(await read("r1")).toBe("older older");
    const now = await readCount(under, "r1");
    expect(now.count).toBeLessThan(before.count);
    await until("the program of the cut to go on", async () => {
      return (await readCount(under, "r1")).count > now.count;
    });
    expect(machinesOf(under, id)).toHaveLength(1);
    expect(await under.sh("r1", "cat /run/perdure/generation")).toBe("2");
  });

  test("and forth again: what the restore was done in place of is whole", async () => {
    const { report } = await under.client.restore("r1", "before-restore-1");
    expect(report).toMatchObject({ generation: 3, otherCut: { keptAs: "before-restore-2" } });
    expect(await read("r1")).toBe("newer newer");
  });

  test("C03 twice from one checkpoint draws other random numbers, and the same identity", async () => {
    const draws: string[] = [];
    for (let i = 0; i < 2; i++) {
      await under.client.restore("r1", "kept");
      draws.push(await under.sh("r1", "head -c 16 /dev/urandom | od -An -tx1"));
    }
    expect(draws[0]).not.toBe(draws[1]);
    expect(await under.sh("r1", "hostname")).toBe("r1");
  });

  test("dropping kept cuts frees their files, and what stays can still be restored", async () => {
    const { client } = under;
    const named = (await client.checkpoints("r1")).filter(({ name }) => name !== null);
    const dropped = named.filter(({ name }) => name?.startsWith("before-restore-"));
    expect(dropped.length).toBeGreaterThanOrEqual(4);
    const before = packs(id).length;
    const stored = (await client.show("r1")).storedBytes;
    for (const { name } of dropped) await client.drop("r1", name ?? "");
    expect((await client.checkpoints("r1")).map(({ name }) => name)).toEqual(["kept"]);
    expect(packs(id).length).toBeLessThan(before);
    expect((await client.show("r1")).storedBytes).toBeLessThan(stored);
    await client.restore("r1", "kept");
    expect(await read("r1")).toBe("older older");
  });

  test("C24 after a crash: the kept disk is a way back to what was fsynced", async () => {
    const { client } = under;
    await write("r1", "fsynced");
    const { generation } = await client.show("r1");
    await crash(under, id);
    await until("the crash to be seen", async () => (await client.show("r1")).state === "failed");
    await client.wake("r1");
    expect(await read("r1")).toBe("older older");
    const { report } = await client.restore("r1", `crash-${generation}-disk`);
    expect(report).toMatchObject({ route: "restore", cut: { memory: false, kind: "crash-disk" } });
    expect(await read("r1")).toBe("fsynced");
  });

  test("C46 everything is as it was, whoever changed it, and what is newer is gone", async () => {
    const { client } = under;
    // A program that goes on writing beside all others; a tree with modes, owners, links and times.
    const old = `mkdir -p /srv/tree/deep /srv/tree/emptied && cd /srv/tree &&
      echo first > file && echo run > program && chmod 4711 program && chown user deep &&
      ln -s file link && ln file deep/hard && touch -d 2001-02-03 aged && echo x > emptied/x &&
      head -c 3M /dev/urandom > big && mkfifo fifo`;
    await under.sh("r1", old);
    const listing = `cd / && find srv etc home root var/lib var/tmp -xdev -printf '%p %y %m %u %g %l %n %T@ %s\\n' |
      sort | sha256sum; find srv etc home root -xdev -type f -exec sha256sum {} + | sort | sha256sum`;
    await client.checkpoint("r1", { name: "tree" });
    const before = await under.sh("r1", listing);
    await client.exec(
      "r1",
      ["/bin/sh", "-c", "while :; do echo more >> /srv/tree/log; cp big /srv/tree/copy; done"],
      { user: "root" },
    );
    const changed = `cd /srv/tree && rm -r emptied aged fifo && echo second > file && chmod 600 program &&
      chown root deep && ln -sfn big link && rm deep/hard && truncate -s 5M big &&
      /usr/bin/python3 -c 'import sqlite3; sqlite3.connect("made.db").execute("create table t(x)")' &&
      /usr/bin/perl -e 'rename("program", "moved")' && mkdir -p /home/user/new/deep && echo n > /home/user/new/deep/n &&
      echo "10.0.0.1 other" >> /etc/hosts && echo crumb > /var/tmp/crumb && sync`;
    await under.sh("r1", changed);
    await client.writeFile("r1", "/home/user/by-call", "a call");
    await until("the program that goes on", async () => {
      return (await under.sh("r1", "ls /srv/tree")).includes("log");
    });
    expect(await under.sh("r1", listing)).not.toBe(before);
    await client.restore("r1", "tree");
    expect(await under.sh("r1", listing)).toBe(before);
    expect(await under.sh("r1", "cat /srv/tree/link; ls /home/user/new 2>&1 || true")).toMatch(
      /^first\n.*No such file/,
    );
    // The disk itself says so, too.
    expect(await under.sh("r1", `echo 3 > /proc/sys/vm/drop_caches; ${listing}`)).toBe(before);
    await client.drop("r1", "tree");
  });

  test("of an agent that sleeps, and to nothing that is there", async () => {
    const { client } = under;
    await client.sleep("r1");
    await expect(client.restore("r1", "nothing")).rejects.toMatchObject({
      code: "checkpoint_not_found",
    });
    expect((await client.show("r1")).state).toBe("asleep");
    await client.restore("r1", "kept");
    expect(await read("r1")).toBe("older older");
    await client.remove("r1");
  });
});
