/**
 * A fork on real VMs: where its origin is, by itself, and another computer. Witnesses inside: a program
 * that counts in memory, files, identifiers, random numbers; outside: the host's process table.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { crash, machineOf, machinesOf, refusal } from "./host-view.ts";

const under = new DaemonUnderTest();

beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

const identity = (name: string): Promise<string> =>
  under.sh(
    name,
    "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1",
  );

async function crashed(name: string): Promise<void> {
  const { client } = under;
  await crash(under, (await client.show(name)).id);
  await until("the crash to be seen", async () => (await client.show(name)).state === "failed");
}

describe("fork", () => {
  let origin: string;
  let fork: string;

  test("C03 of an awake agent goes on from where it is, as another computer; the origin goes on, too", async () => {
    const { client } = under;
    ({ id: origin } = await client.create({ name: "f1" }));
    await startCounter(under, "f1");
    await under.sh("f1", "printf before > /home/user/file; printf before > /dev/shm/file");
    const before = await readCount(under, "f1");

    const forked = await client.fork("f1", "f2");
    fork = forked.agent.id;
    expect(forked).toMatchObject({
      agent: { name: "f2", state: "awake", generation: 1 },
      report: { route: "fork", cut: { memory: true } },
    });
    const there = await readCount(under, "f2");
    expect(there.count).toBeGreaterThanOrEqual(before.count);
    expect(there.pid).toBe(before.pid);
    await countsOn(under, "f2", there.count);
    await countsOn(under, "f1", (await readCount(under, "f1")).count);
    expect(await under.sh("f2", "cat /home/user/file /dev/shm/file")).toBe("beforebefore");

    const [ours, theirs] = [await identity("f1"), await identity("f2")].map((text) =>
      text.split("\n"),
    );
    for (const [i, line] of (theirs ?? []).entries()) expect(line).not.toBe(ours?.[i]);
    expect(theirs?.[0]).toBe("f2");
    expect(machineOf(under, origin)).not.toBe(machineOf(under, fork));
  });

  test("C12 what either writes the other never sees", async () => {
    await under.sh("f2", "printf fork > /home/user/file; printf fork > /dev/shm/file; sync");
    await under.sh("f1", "printf origin > /home/user/file; sync");
    expect(await under.sh("f1", "cat /home/user/file /dev/shm/file")).toBe("originbefore");
    expect(await under.sh("f2", "cat /home/user/file /dev/shm/file")).toBe("forkfork");
  });

  test("it sleeps and wakes after its origin was removed", async () => {
    const { client } = under;
    await client.remove("f1");
    const { count } = await readCount(under, "f2");
    await client.sleep("f2");
    expect(machinesOf(under, fork)).toEqual([]);
    await client.wake("f2");
    expect((await readCount(under, "f2")).count).toBeGreaterThanOrEqual(count);
    expect(await under.sh("f2", "cat /home/user/file /dev/shm/file")).toBe("forkfork");
  });

  test("of an agent with a memory base of its own, whose origin is removed before the fork's first sleep", async () => {
    const { client } = under;
    await client.exec("f2", ["/bin/sh", "-c", "head -c 150000000 /dev/urandom > /dev/shm/large"]);
    await under.sh("f2", "while [ $(stat -c %s /dev/shm/large) != 150000000 ]; do sleep 0.1; done");
    const sum = await under.sh("f2", "sha256sum /dev/shm/large");
    await client.sleep("f2");
    await client.fork("f2", "f3");
    await client.remove("f2");
    expect(await under.sh("f3", "sha256sum /dev/shm/large")).toBe(sum);
    await under.restart();
    await under.client.sleep("f3");
    await under.client.wake("f3");
    expect(await under.sh("f3", "sha256sum /dev/shm/large")).toBe(sum);
  });

  test("from a named checkpoint of a crashed agent; its own first crash costs its memory alone", async () => {
    const { client } = under;
    await client.checkpoint("f3", { name: "kept" });
    await crashed("f3");
    await client.fork("f3", "f4", { checkpoint: "kept" });
    await under.sh("f4", "printf forked > /home/user/file; sync");
    await crashed("f4");
    await client.wake("f4");
    expect(await under.sh("f4", "cat /home/user/file; ls /dev/shm | wc -l")).toBe("forked0");
    const taken = await refusal(client.fork("f3", "f4", { checkpoint: "kept" }));
    expect(taken.code).toBe("agent_exists");
    await client.remove("f4");
    await client.remove("f3");
  });
});
