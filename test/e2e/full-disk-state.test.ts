/**
 * The host's disk is full to the last byte, and VMs take each one that gets free: what becomes of agents
 * is stored all the same, what makes room works, and all is well again when there is some. The data
 * directory lies on a small ext4 of its own, mounted here: needs root.
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SmallDisk } from "../fixtures/small-disk.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { crash, refusal } from "./host-view.ts";

const MIB = 1024 * 1024;
/** Holds a tenant's copy of the template, a capture, and some disk of agents. */
const DISK_BYTES = 1000 * MIB;
const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("The full disk is skipped: mounting a small file system needs root");

describe.skipIf(!isRoot)("a host disk without a free byte", () => {
  const disk = new SmallDisk("perdure-full-state");
  const under = new DaemonUnderTest(join(disk.mount, "home"));
  const ballast = join(under.home, "perdure.db.ballast");

  beforeAll(async () => {
    disk.mountAs("ext4", DISK_BYTES);
    await under.start();
  });
  afterAll(async () => {
    disk.makeRoom();
    try {
      expect(await under.end()).toEqual([]);
    } finally {
      disk.unmount();
    }
  });

  const doctor = async () => {
    const { code, stdout } = await under.perdure(["doctor"]);
    return { code, text: stdout };
  };

  test("C34 a VM that waits for room and one that dies are recorded, and it is said what is wrong", async () => {
    const { client } = under;
    for (const name of ["spent", "dies", "writes"]) await client.create({ name });
    await client.sleep("spent");
    expect(existsSync(ballast)).toBe(true);
    const { id } = await client.show("dies");
    disk.fill();
    await client.exec(
      "writes",
      [
        "/bin/sh",
        "-c",
        "head -c 64M /dev/urandom | tee /root/big | sha256sum > /dev/shm/sum; sync",
      ],
      {
        user: "root",
      },
    );
    await until(
      "the VM to wait for room",
      async () => (await client.show("writes")).paused === "disk full",
      120_000,
    );
    await crash(under, id);
    await until("the crash", async () => (await client.show("dies")).state === "failed");

    expect(existsSync(ballast)).toBe(false);
    expect(under.log).toContain("The disk is full");
    const { code, text } = await doctor();
    expect(code).toBe(1);
    expect(text).toContain("no agent can be created");
    expect(text).toContain("not ready");
    const created = await refusal(client.create({ name: "new" }));
    expect([created.code, created.status]).toEqual(["disk_full", 507]);
    expect(created.hint).toContain("Remove an agent");
    const slept = await refusal(client.sleep("writes"));
    expect(["disk_full", "agent_paused"], slept.message).toContain(slept.code);
    expect(`${slept.message} ${slept.hint ?? ""}`).toMatch(
      /needs \d+ bytes|[Ff]ree room on the host's disk/,
    );
    expect(await client.show("writes")).toMatchObject({ state: "awake", paused: "disk full" });
  });

  test("a daemon that is started again finds it so", async () => {
    await under.restart();
    const { client } = under;
    await until(
      "the VM to wait for room",
      async () => (await client.show("writes")).paused === "disk full",
    );
    expect((await client.show("dies")).state).toBe("failed");
    expect((await client.show("spent")).state).toBe("asleep");
  });

  test("C34 agents can be removed, and with room all goes on by itself", async () => {
    const { client } = under;
    for (const name of ["spent", "dies"]) {
      expect(await client.remove(name)).toMatchObject({ state: "removed" });
    }
    rmSync(disk.filler);
    await until("the VM to go on", async () => (await client.show("writes")).paused === null);
    // First the guest writes out what it could not; until then it may not answer.
    await until(
      "the guest to have written it all",
      async () =>
        (await under.sh("writes", "stat -c %s /root/big").catch(() => "")) === String(64 * MIB),
      180_000,
    );
    // Nothing that was written is lost, or another's: the disk itself has it all, past the guest's cache.
    const sums = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum < /root/big; cat /dev/shm/sum";
    const [onDisk, written] = (await under.sh("writes", sums)).split("\n");
    expect(onDisk).toBe(written);
    await until("the ballast to be back", () => existsSync(ballast));
    expect(under.log).toContain("There is room on the disk again");
    expect((await doctor()).code).toBe(0);
    await client.remove("writes");
    expect(await client.create({ name: "new" })).toMatchObject({ state: "awake" });
  });
});
