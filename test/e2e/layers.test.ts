/** The disk of an agent that slept often: many layers, and the same bytes. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Freed } from "@perdure/sdk";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { machinesOf } from "./host-view.ts";

describe("many disk layers", () => {
  const under = new DaemonUnderTest();

  beforeAll(() => under.start());
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  // Merging a chain that grew long once aborted QEMU where the top had a part of a cluster: the agent's
  // memory was lost in the sleep.
  test("C11 twelve cycles with writes to memory and disk keep both, whatever the disk's chain becomes", async () => {
    const { client } = under;
    await client.create({ name: "often" });
    await startCounter(under, "often");
    const { pid } = await readCount(under, "often");
    // In place: the file system moves nothing, so that each layer holds parts of clusters.
    const size = 8 * 65_536;
    await under.sh("often", `head -c ${size} /dev/zero | tr '\\0' . > /home/user/pieces; sync`);
    const write = `open(my $f, "+<", "/home/user/pieces") or die;
      for my $at (@ARGV[1 .. $#ARGV]) { seek($f, $at, 0); print $f $ARGV[0] x 4096 }`;
    for (let cycle = 0; cycle < 12; cycle++) {
      // One block of each four, backwards: a layer holds the block before those of the layer below.
      const places = Array.from({ length: 32 }, (_, i) => (4 * i + 3 - (cycle % 4)) * 4_096);
      const letter = String.fromCharCode(97 + cycle);
      const argv = ["/usr/bin/perl", "-e", write, letter, ...places.map(String)];
      expect((await client.run("often", argv, { user: "root" })).exitCode).toBe(0);
      await under.sh("often", `sync; echo ${letter} > /dev/shm/value-${letter}`);
      await client.sleep("often");
      await client.wake("often");
    }
    const now = await readCount(under, "often");
    expect(now.pid).toBe(pid);
    await countsOn(under, "often", now.count);
    expect(await under.sh("often", "cat /dev/shm/value-* | tr -d '\\n'")).toBe("abcdefghijkl");
    const pieces = await under.sh("often", "fold -w4096 /home/user/pieces | cut -c1 | tr -d '\\n'");
    expect(pieces).toBe("lkji".repeat(32));
  });

  test("C11 a gc of the sleeping agent makes them few; its memory and disk are what they were", async () => {
    const { client } = under;
    await client.create({ name: "rests" });
    await startCounter(under, "rests");
    const digests = "sha256sum /home/user/one /home/user/two /home/user/large";
    // The last is larger than all that lies between it and the image, so that all of that is merged.
    for (const [file, bytes] of Object.entries({ one: 65_536, two: 65_536, large: 16_777_216 })) {
      await under.sh("rests", `head -c ${bytes} /dev/urandom > /home/user/${file}; sync`);
      if (file !== "large") await client.sleep("rests");
    }
    const digest = await under.sh("rests", digests);
    const before = await readCount(under, "rests");
    await client.sleep("rests");
    const { code, stdout } = await under.perdure(["gc", "rests", "--json"]);
    expect(code).toBe(0);
    const { agents } = JSON.parse(stdout) as { agents: Freed[] };
    expect(agents).toMatchObject([{ notice: null, layers: { before: 4, after: 2 } }]);
    expect(agents[0]?.freedBytes).toBeGreaterThan(16_777_216);
    expect(machinesOf(under, (await client.show("rests")).id)).toEqual([]);
    expect((await under.perdure(["verify", "rests"])).code).toBe(0);
    await countsOn(under, "rests", before.count);
    expect((await readCount(under, "rests")).pid).toBe(before.pid);
    expect(await under.sh("rests", digests)).toBe(digest);
  });

  test("C11 what was merged, awake and at rest, is exported without a name of this host and imported whole", async () => {
    const { client } = under;
    await client.sleep("often");
    for (const [agent, file] of [
      ["often", "/home/user/pieces"],
      ["rests", "/home/user/large"],
    ] as const) {
      if ((await client.show(agent)).state === "awake") await client.sleep(agent);
      const path = join(under.home, `${agent}.perdure`);
      const sent = await under.perdure(["export", agent, "--in-clear", "-o", path]);
      expect(sent.code, sent.stderr).toBe(0);
      const { id } = await client.show(agent);
      expect(namesIn(join(under.home, "agents", id, "layers"))).toEqual([]);
      const name = `${agent}-again`;
      const back = await under.perdure(["import", path, "--name", name]);
      expect(back.code, back.stderr).toBe(0);
      const digest = `sha256sum ${file}`;
      expect(await under.sh(name, digest)).toBe(await under.sh(agent, digest));
      await client.remove(name);
    }
  });
});

/** Backing files that the headers of layers name. */
function namesIn(folder: string): string[] {
  const found: string[] = [];
  for (const layer of readdirSync(folder)) {
    const head = readFileSync(join(folder, layer));
    const [at, length] = [Number(head.readBigUInt64BE(8)), head.readUInt32BE(16)];
    if (length > 0) found.push(head.toString("latin1", at, at + length));
  }
  return found;
}
