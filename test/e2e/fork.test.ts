/**
 * A fork on real VMs: where its origin is, by itself, and another computer. Witnesses inside: a program
 * that counts in memory, files, identifiers, random numbers; outside: the host's process table.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { away, expectRightClock } from "./guest-clock.ts";
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
    await expectRightClock(under, "f2");
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

  test("C01 from a named checkpoint of a crashed agent, with the clock of now; its own first crash costs its memory alone", async () => {
    const { client } = under;
    await client.checkpoint("f3", { name: "kept" });
    await crashed("f3");
    await away();
    await client.fork("f3", "f4", { checkpoint: "kept" });
    await expectRightClock(under, "f4");
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

async function awake(): Promise<number> {
  let count = 0;
  for await (const { state } of under.client.list()) if (state === "awake") count++;
  return count;
}

test("hot children: forks and a restore begin from machines that were ready, and go on by themselves", async () => {
  const { client } = under;
  await client.create({ name: "h1" });
  await startCounter(under, "h1");
  await under.sh("h1", "head -c 1000000 /dev/urandom > /dev/shm/noise");
  const noise = await under.sh("h1", "sha256sum < /dev/shm/noise");
  await client.checkpoint("h1", { name: "root" });
  await under.sh("h1", "rm /dev/shm/noise");
  const vms = under.vmPids().length;
  await client.hot("h1", { checkpoint: "root", count: 2 });
  await client.hot("h1", { checkpoint: "root", count: 1, use: "restore" });
  expect(under.vmPids().length).toBeGreaterThanOrEqual(vms + 2);

  for (const name of ["h2", "h3"]) {
    const { report } = await client.fork("h1", name, { checkpoint: "root" });
    expect(report?.checks).toContainEqual(expect.objectContaining({ check: "hot-child" }));
    expect(await under.sh(name, "sha256sum < /dev/shm/noise; hostname")).toBe(`${noise}\n${name}`);
    await countsOn(under, name, (await readCount(under, name)).count);
  }
  const ids = await Promise.all(["h2", "h3"].map((name) => under.sh(name, "cat /etc/machine-id")));
  expect(new Set(ids).size).toBe(2);
  const { report } = await client.restore("h1", "root");
  expect(report?.phases).not.toHaveProperty("devices");
  expect(await under.sh("h1", "sha256sum < /dev/shm/noise")).toBe(noise);

  for (const name of ["h1", "h2"]) {
    await client.sleep(name);
    expect(await under.sh(name, "sha256sum < /dev/shm/noise")).toBe(noise);
    await countsOn(under, name, (await readCount(under, name)).count);
  }
});

test("several forks of one cut share what has changed, and outlive their origin", async () => {
  const { client } = under;
  await client.create({ name: "m1" });
  await startCounter(under, "m1");
  const forks = await client.forkAll("m1", ["m2", "m3", "m4"]);
  expect(new Set(forks.map(({ report: made }) => made?.cut.checkpoint)).size).toBe(1);
  await client.remove("m1");
  for (const { agent } of forks) {
    await countsOn(under, agent.name, (await readCount(under, agent.name)).count);
    await client.remove(agent.name);
  }
});

test("hot children do not outlive a daemon that is killed", async () => {
  const { client } = under;
  await client.create({ name: "k1" });
  await client.checkpoint("k1", { name: "root" });
  await client.hot("k1", { checkpoint: "root", count: 2 });
  await under.restart();
  await under.client.sleep("k1");
  await until("hot children to be gone", async () => under.vmPids().length <= 1 + (await awake()));
  expect((await under.client.fork("k1", "k2", { checkpoint: "root" })).agent.state).toBe("awake");
});
