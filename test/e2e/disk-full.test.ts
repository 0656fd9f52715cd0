/**
 * The host's disk is full when an agent shall be captured. The data directory lies on a small ext4 of
 * its own, mounted here: needs root.
 */
import { execFileSync } from "node:child_process";
import { globSync, statfsSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SmallDisk } from "../fixtures/small-disk.ts";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { crash, machineOf, machinesOf, refusal } from "./host-view.ts";

const MIB = 1024 * 1024;
/** Holds a tenant's copy of the template, the reserve, and two captures. */
const DISK_BYTES = 900 * MIB;
const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("C15 is skipped: mounting a small file system needs root");

describe.skipIf(!isRoot)("a host disk without room", () => {
  const disk = new SmallDisk("perdure-full");
  const under = new DaemonUnderTest(join(disk.mount, "home"));

  beforeAll(async () => {
    disk.mountAs("ext4", DISK_BYTES);
    await under.start();
  });
  afterAll(async () => {
    try {
      expect(await under.end()).toEqual([]);
    } finally {
      disk.unmount();
    }
  });

  function freeBytes(): number {
    const { bavail, bsize } = statfsSync(disk.mount);
    return bavail * bsize;
  }

  /** Leaves `bytes` free. */
  function fill(bytes: number): void {
    execFileSync("fallocate", ["-l", String(freeBytes() - bytes), disk.filler]);
  }

  /** Files of the agents by name, but for what only says that something was looked at. */
  function files(): string[] {
    return globSync(join(under.home, "{agents,tenants}/**"), { withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name !== "verified.json")
      .map((entry) => relative(under.home, join(entry.parentPath, entry.name)))
      .sort();
  }

  /** Random bytes in memory that any capture has to store. */
  async function dirty(mib: number): Promise<string> {
    const line = `head -c ${mib * MIB} /dev/urandom > /dev/shm/big && sha256sum < /dev/shm/big`;
    return under.sh("full", line, "user");
  }

  test("C15 a sleep that does not fit is refused with the room it needs, and the agent goes on", async () => {
    const { client } = under;
    const { id } = await client.create({ name: "full" });
    await startCounter(under, "full");
    await under.sh("full", "echo first > /dev/shm/mark");
    await client.checkpoint("full");
    const { head, generation } = await client.show("full");
    const content = await dirty(48);
    await under.sh("full", "echo second > /dev/shm/mark");
    const machine = machineOf(under, id);
    const before = await readCount(under, "full");
    const filesBefore = files();
    fill(100 * MIB);
    const freeBefore = freeBytes();

    for (let attempt = 0; attempt < 2; attempt++) {
      const refused = await refusal(client.sleep("full"));
      expect([refused.code, refused.status, refused.retry]).toEqual(["disk_full", 507, "safe"]);
      expect(Number(refused.details["needBytes"])).toBeGreaterThanOrEqual(48 * MIB);
      expect(Number(refused.details["needBytes"])).toBeLessThan(512 * MIB);
      expect(refused.message).toContain(String(refused.details["needBytes"]));
      expect(refused.hint).toMatch(/^Free \d+ bytes or more on the file system of/);
    }
    const agent = await client.show("full");
    expect([agent.state, agent.paused, agent.head]).toEqual(["awake", null, head]);
    expect(agent.generation).toBe(generation);
    expect(machinesOf(under, id)).toEqual([machine]);
    // Awake, thawed and answering, with all it had.
    const after = await readCount(under, "full");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "full", after.count);
    expect(await under.sh("full", "sha256sum < /dev/shm/big; cat /dev/shm/mark")).toBe(
      `${content}\nsecond`,
    );
    expect(files()).toEqual(filesBefore);
    expect(freeBytes()).toBeGreaterThan(freeBefore - 8 * MIB);
  });

  test("C15 a checkpoint that does not fit is refused the same way, without a stuck freeze", async () => {
    const { client } = under;
    const rows = await client.checkpoints("full");
    const refused = await refusal(client.checkpoint("full", { name: "no-room" }));
    expect(refused.code).toBe("disk_full");
    expect(Number(refused.details["needBytes"])).toBeGreaterThanOrEqual(48 * MIB);
    expect(await client.checkpoints("full")).toEqual(rows);
    await countsOn(under, "full", (await readCount(under, "full")).count);
    const text = await under.perdure(["sleep", "full", "--json"]);
    expect(text.code).toBe(1);
    expect(text.stderr).toContain("disk_full");
    expect(text.stderr).toMatch(/needs \d+ bytes/);
  });

  test("C15 the checkpoint from before still wakes", async () => {
    const { client } = under;
    const { id, head, generation } = await client.show("full");
    disk.makeRoom();
    await crash(under, id);
    await until("the crash to be seen", async () => (await client.show("full")).state === "failed");
    const { agent, report } = await client.wake("full");
    expect(agent.generation).toBe(generation + 1);
    expect(report?.cut).toMatchObject({ checkpoint: head, memory: true });
    expect(await under.sh("full", "cat /dev/shm/mark")).toBe("first");
    await countsOn(under, "full", (await readCount(under, "full")).count);
  });

  test("C15 after a refusal and a restart nothing left over blocks the next attempt", async () => {
    const { client } = under;
    const content = await dirty(48);
    fill(100 * MIB);
    expect((await refusal(client.sleep("full"))).code).toBe("disk_full");
    await under.restart();
    expect((await refusal(under.client.sleep("full"))).code).toBe("disk_full");
    disk.makeRoom();
    const { count } = await readCount(under, "full");
    expect((await under.client.sleep("full")).state).toBe("asleep");
    await under.client.wake("full");
    expect(await under.sh("full", "sha256sum < /dev/shm/big")).toBe(content);
    expect((await readCount(under, "full")).count).toBeGreaterThanOrEqual(count);
  });
});
