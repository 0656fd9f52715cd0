/** Another size: a disk that grows awake and asleep, and over a crash; memory and CPUs at the next cold start. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { GIB, MIB } from "@perdure/protocol";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";

const under = new DaemonUnderTest();

beforeAll(async () => {
  await under.start();
  await under.client.create({ name: "grows", diskBytes: 2 * GIB });
  await startCounter(under, "grows");
});
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

/** What the file system inside has, without what ext4 keeps for itself. */
async function dfBytes(): Promise<number> {
  return Number(await under.sh("grows", "df --block-size=1 --output=size / | tail -n1"));
}

function expectFilled(bytes: number, diskBytes: number): void {
  expect(bytes).toBeLessThanOrEqual(diskBytes);
  expect(bytes).toBeGreaterThan(0.9 * diskBytes);
}

test("the disk of an awake agent grows, its programs go on; a sleep and a wake keep it", async () => {
  const { client } = under;
  expectFilled(await dfBytes(), 2 * GIB);
  const before = await readCount(under, "grows");
  const { code, stdout, stderr } = await under.perdure(["set", "grows", "--disk", "4G"]);
  expect(code, stderr).toBe(0);
  expect(stdout).toBe('Agent "grows" is changed\n');
  expectFilled(await dfBytes(), 4 * GIB);
  expect(await client.show("grows")).toMatchObject({
    shape: { diskBytes: 4 * GIB },
    pending: null,
  });
  await under.sh("grows", "head -c 1048576 /dev/urandom > /root/kept; sha256sum /root/kept");
  const digest = await under.sh("grows", "sync; sha256sum /root/kept");
  await client.checkpoint("grows", { name: "four" });
  await client.sleep("grows");
  await countsOn(under, "grows", before.count);
  expect((await readCount(under, "grows")).pid).toBe(before.pid);
  expectFilled(await dfBytes(), 4 * GIB);
  expect(await under.sh("grows", "sha256sum /root/kept")).toBe(digest);
});

test("a disk that is set larger asleep grows at the wake; one that would shrink is refused", async () => {
  const { client } = under;
  const before = await readCount(under, "grows");
  await client.sleep("grows");
  expect(await client.configure("grows", { diskBytes: 6 * GIB })).toMatchObject({
    shape: { diskBytes: 4 * GIB },
    pending: { diskBytes: 6 * GIB },
  });
  const refused = await under.perdure(["set", "grows", "--disk", "5G", "--idle-after", "never"]);
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain("only grows");
  await countsOn(under, "grows", before.count);
  expect((await readCount(under, "grows")).pid).toBe(before.pid);
  expectFilled(await dfBytes(), 6 * GIB);
  expect(await client.show("grows")).toMatchObject({ pending: null });
});

test("a daemon that dies between the record and the growth leaves it to the next one", async () => {
  const before = await readCount(under, "grows");
  await under.restart({ PERDURE_CRASH: "grow.recorded:daemon" });
  const set = under.client.configure("grows", { diskBytes: 7 * GIB });
  await expect(set).rejects.toMatchObject({ code: "interrupted" });
  await under.gone();
  await under.start();
  expect(await under.client.show("grows")).toMatchObject({
    state: "awake",
    shape: { diskBytes: 7 * GIB },
    pending: null,
  });
  expectFilled(await dfBytes(), 7 * GIB);
  await countsOn(under, "grows", before.count);
  expect((await readCount(under, "grows")).pid).toBe(before.pid);
});

test("a restore to a checkpoint of a smaller disk grows it again", async () => {
  const { client } = under;
  await client.restore("grows", "four");
  expectFilled(await dfBytes(), 7 * GIB);
  expect(await under.sh("grows", "fallocate -l 5G /root/five && stat -c %s /root/five")).toBe(
    String(5 * GIB),
  );
  await under.sh("grows", "rm /root/five");
});

test("memory and CPUs come with the next cold start, and the disk is checked whole", async () => {
  const { client } = under;
  const set = await under.perdure(["set", "grows", "--memory", "640M", "--cpus", "2"]);
  expect(set.stdout).toContain("from its next cold start on 640 MiB memory, 2 CPU");
  expect((await under.perdure(["why", "grows"])).stdout).toContain("640 MiB of memory and 2 CPUs");
  expect(await under.sh("grows", "nproc")).toBe("1");
  await client.stop("grows");
  await client.start("grows");
  expect(await client.show("grows")).toMatchObject({
    shape: { memoryBytes: 640 * MIB, cpus: 2, diskBytes: 7 * GIB },
    pending: null,
  });
  expect(await under.sh("grows", "nproc")).toBe("2");
  const kib = Number(await under.sh("grows", "awk '/MemTotal/ {print $2}' /proc/meminfo"));
  expect(kib).toBeGreaterThan(520 * 1024);
  expectFilled(await dfBytes(), 7 * GIB);
  expect(await under.sh("grows", "dmesg | grep -c 'EXT4-fs error' || true")).toBe("0");
  // Its older size, with its memory.
  await client.restore("grows", "four");
  expect(await client.show("grows")).toMatchObject({
    shape: { memoryBytes: 512 * MIB, cpus: 1, diskBytes: 7 * GIB },
    pending: { memoryBytes: 640 * MIB, cpus: 2 },
  });
  expect(await under.sh("grows", "nproc")).toBe("1");
});
