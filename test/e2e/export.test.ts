/**
 * An agent's way through a file to another host, on real VMs: another data directory with other keys, other
 * images and no template stands for the host. And what an import that dies leaves.
 */
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const here = new DaemonUnderTest();
const there = new DaemonUnderTest();
const images = mkdtempSync(join(tmpdir(), "perdure-images-"));
const folder = mkdtempSync(join(tmpdir(), "perdure-export-"));
const file = join(folder, "x1.perdure");
const secret = join(folder, "secret");

beforeAll(async () => {
  writeFileSync(secret, "correct horse battery staple\n");
  await here.start();
  await there.start({ PERDURE_IMAGES: images });
});
afterAll(async () => {
  const left = [await here.end(), await there.end()];
  for (const path of [images, folder]) rmSync(path, { recursive: true, force: true });
  expect(left).toEqual([[], []]);
});

const identity = (under: DaemonUnderTest, name: string): Promise<string> =>
  under.sh(
    name,
    "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub; head -c 16 /dev/urandom | od -An -tx1",
  );

async function read(bytes: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(bytes));
}

describe("export and import", () => {
  test("C16 verify finds everything of a sleeping agent good", async () => {
    const { client } = here;
    await client.create({ name: "x1" });
    await startCounter(here, "x1");
    await here.sh("x1", "printf before > /home/user/file; printf before > /dev/shm/file");
    await client.checkpoint("x1", { name: "first" });
    await client.sleep("x1");
    const { code, stdout } = await here.perdure(["verify", "x1", "--json"]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ good: 2, damaged: 0, gone: 0 });
  });

  test("C03 an agent goes on on another host where it slept, as another computer", async () => {
    const before = await here.client.show("x1");
    const out = await here.perdure(["export", "x1", "-o", file, "--passphrase-file", secret]);
    expect(out).toMatchObject({ code: 0 });
    const signer = /signed by ([0-9a-f]{64})/.exec(out.stdout)?.[1] ?? "";
    const words = ["import", file, "--name", "x2", "--passphrase-file", secret];
    const come = await there.perdure(words);
    expect(come).toMatchObject({ code: 0 });
    expect(come.stdout).toContain(signer);
    expect(await there.client.show("x2")).toMatchObject({ state: "asleep", generation: 0 });

    const { agent, report } = await there.client.wake("x2");
    expect(agent.id).not.toBe(before.id);
    expect(report).toMatchObject({ route: "import", generation: 1, cut: { kind: "import" } });
    await here.client.wake("x1");
    expect(await there.sh("x2", "cat /home/user/file /dev/shm/file")).toBe("beforebefore");
    await countsOn(there, "x2", (await readCount(there, "x2")).count);
    await countsOn(here, "x1", (await readCount(here, "x1")).count);
    const [ours, theirs] = [await identity(here, "x1"), await identity(there, "x2")];
    for (const [i, line] of theirs.split("\n").entries())
      expect(line).not.toBe(ours.split("\n")[i]);
    expect(theirs.split("\n")[0]).toBe("x2");
  });

  test("it sleeps, wakes and restarts there like any other, and brought its image along", async () => {
    const { client } = there;
    const { count } = await readCount(there, "x2");
    await client.sleep("x2");
    expect((await client.wake("x2")).report).toMatchObject({ route: "wake", generation: 2 });
    expect((await readCount(there, "x2")).count).toBeGreaterThanOrEqual(count);
    await client.stop("x2");
    await client.start("x2");
    expect(await there.sh("x2", "hostname; cat /home/user/file")).toBe("x2\nbefore");
    expect(readdirSync(images).filter((name) => /^[0-9a-f]{64}$/.test(name))).toHaveLength(1);
    const { code } = await there.perdure(["verify", "x2"]);
    expect(code).toBe(0);
    await client.remove("x2");
  });

  test("with --all it brings what was kept, and goes back to it", async () => {
    await here.client.sleep("x1");
    const exported = await here.client.export("x1", {
      all: true,
      withoutImage: true,
      inClear: true,
    });
    await there.client.import("x3", exported.bytes);
    await there.client.wake("x3");
    const { report } = await there.client.restore("x3", "first");
    expect(report).toMatchObject({ route: "restore", cut: { kind: "import" } });
    expect(await there.sh("x3", "hostname; cat /dev/shm/file")).toBe("x3\nbefore");
    await there.client.remove("x3");
  });

  test("of a stopped agent it is booted there", async () => {
    await here.client.wake("x1");
    await here.client.stop("x1");
    const { bytes } = await here.client.export("x1", { inClear: true });
    const { agent } = await there.client.import("x4", bytes);
    expect(agent.state).toBe("stopped");
    const { report } = await there.client.start("x4");
    expect(report).toMatchObject({ route: "import", cut: { memory: false } });
    expect(await there.sh("x4", "hostname; cat /home/user/file")).toBe("x4\nbefore");
    await there.client.remove("x4");
  });

  test("a file that was changed is refused, and nothing of it is left", async () => {
    const bytes = await read((await here.client.export("x1", { inClear: true })).bytes);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
    const refused = await refusal(there.client.import("x5", bytes));
    expect(refused.code).toBe("export_invalid");
    expect(there.storedAgents()).toEqual([]);
  });

  test("a kill -9 of the daemon in the middle of an import leaves nothing after the restart", async () => {
    const bytes = await read((await here.client.export("x1", { inClear: true })).bytes);
    rmSync(images, { recursive: true });
    const half = Promise.withResolvers<undefined>();
    const slowly = async function* (): AsyncGenerator<Uint8Array> {
      yield bytes.subarray(0, bytes.length >> 1);
      await half.promise;
    };
    const importing = there.client.import("x6", slowly()).catch((error: unknown) => error);
    await until("the import to be under way", () => {
      const [agent] = there.storedAgents();
      const staging = join(there.home, "agents", agent ?? "none", ".import");
      return existsSync(staging) && readdirSync(staging).length > 0;
    });
    await there.kill();
    half.resolve(undefined);
    expect(await importing).toBeInstanceOf(Error);
    await there.start({ PERDURE_IMAGES: images });
    expect(there.storedAgents()).toEqual([]);
    expect(readdirSync(images).filter((name) => name !== "templates")).toEqual([".lock"]);
    expect((await refusal(there.client.show("x6"))).code).toBe("agent_not_found");
    await there.client.import("x6", bytes);
    await there.client.remove("x6");
  });
});
