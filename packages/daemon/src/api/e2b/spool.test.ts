/** Uploads of no known length, kept until they are whole, on a disk that has room for them or not. */
import { readdirSync, statfsSync } from "node:fs";
import { buffer } from "node:stream/consumers";
import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { SmallDisk } from "../../../../../test/fixtures/small-disk.ts";
import { Spool } from "./spool.ts";

const canMount = process.getuid?.() === 0;
if (!canMount) console.warn("Skipped: a small file system can be mounted by root only");

test.skipIf(!canMount)("C15 an upload that finds no room says so, and leaves nothing", async () => {
  const disk = new SmallDisk("perdure-spool");
  disk.mountAs("tmpfs", 1024 * 1024);
  try {
    const free = statfsSync(disk.mount).bfree;
    {
      await using spool = await Spool.open(disk.mount, "one");
      const large = Readable.from([Buffer.alloc(700_001, 1), Buffer.alloc(700_001, 2)]);
      await expect(spool.take(large)).rejects.toMatchObject({ code: "disk_full", status: 507 });
    }
    expect(readdirSync(disk.mount)).toEqual([]);
    expect(statfsSync(disk.mount).bfree).toBe(free);
    await using spool = await Spool.open(disk.mount, "two");
    const bytes = Buffer.alloc(400_001, 3);
    const first = await spool.take(Readable.from([bytes]));
    const second = await spool.take(Readable.from([Buffer.from("second")]));
    expect((await buffer(first.bytes())).equals(bytes)).toBe(true);
    expect((await buffer(second.bytes())).toString()).toBe("second");
  } finally {
    disk.unmount();
  }
});
