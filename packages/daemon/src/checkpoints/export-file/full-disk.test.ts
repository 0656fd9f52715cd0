/** An import that finds no room, wherever the room ends: a typed error, and not a byte is left. */
import { rmSync, statfsSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  ExportRig,
  agentsIn,
  importInto,
  inPieces,
} from "../../../../../test/fixtures/export-rig.ts";
import { SmallDisk } from "../../../../../test/fixtures/small-disk.ts";
import { openKeyRing } from "../key-ring.ts";
import { StoreHome } from "../local/store-home.ts";
import { WorkPool } from "../work/pool.ts";

const canMount = process.getuid?.() === 0;
if (!canMount) console.warn("Skipped: a small file system can be mounted by root only");

const pool = new WorkPool();
let rig: ExportRig;
let bytes: Buffer;

beforeAll(async () => {
  rig = await ExportRig.open(pool);
  bytes = await rig.bytes();
});
afterAll(async () => {
  await rig.dispose();
  await pool.close();
});

test.skipIf(!canMount)(
  "C15 an import that finds no room leaves nothing, and works once there is",
  async () => {
    for (const mebibytes of [1, 2, 6, 12, 18]) {
      const disk = new SmallDisk("perdure-import");
      disk.mountAs("tmpfs", mebibytes * 1024 * 1024);
      try {
        const home = new StoreHome(disk.mount, await openKeyRing(disk.mount), pool);
        const store = await home.open({ findTemplateBase: () => Promise.resolve(null) });
        const free = statfsSync(disk.mount).bfree;
        await expect(importInto(store, inPieces(bytes))).rejects.toMatchObject({
          code: "disk_full",
        });
        expect(await agentsIn(home)).toEqual([]);
        expect(statfsSync(disk.mount).bfree).toBe(free);
        await store.close();
      } finally {
        disk.unmount();
      }
    }
    const roomy = new SmallDisk("perdure-import");
    roomy.mountAs("tmpfs", 96 * 1024 * 1024);
    try {
      const home = new StoreHome(roomy.mount, await openKeyRing(roomy.mount), pool);
      const store = await home.open({ findTemplateBase: () => Promise.resolve(null) });
      await importInto(store, inPieces(bytes));
      await store.close();
    } finally {
      roomy.unmount();
      rmSync(roomy.mount, { recursive: true, force: true });
    }
  },
);
