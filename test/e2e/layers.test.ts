/** The disk of an agent that slept often: many layers, and the same bytes. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";

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
});
