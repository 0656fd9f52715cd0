import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import { EmptyLayers } from "./empty-layer.ts";

const run = promisify(execFile);
let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "perdure-layers-"));
});
afterEach(() => rm(home, { recursive: true }));

test("an empty layer is a sound qcow2 of the wanted size that takes next to no room", async () => {
  const layers = new EmptyLayers(home);
  for (const gib of [2, 8, 1024]) {
    const path = join(home, `${gib}.qcow2`);
    await layers.create(path, gib * 2 ** 30);
    const { stdout } = await run("qemu-img", ["info", "--output=json", path]);
    expect(JSON.parse(stdout)).toMatchObject({ format: "qcow2", "virtual-size": gib * 2 ** 30 });
    await run("qemu-img", ["check", "-q", path]);
    expect((await stat(path)).blocks * 512).toBeLessThanOrEqual(16 * 1024);
  }
});

test("a second layer of a size is a copy, also for a store that opens later", async () => {
  await new EmptyLayers(home).create(join(home, "a"), 2 ** 31);
  const later = new EmptyLayers(home, "/nonexistent/qemu-img");
  await Promise.all([
    later.create(join(home, "b"), 2 ** 31),
    later.create(join(home, "c"), 2 ** 31),
  ]);
  expect(await readFile(join(home, "b"))).toEqual(await readFile(join(home, "a")));
  await expect(later.create(join(home, "d"), 2 ** 32)).rejects.toMatchObject({
    code: "host_not_ready",
  });
  await expect(later.create(join(home, "b"), 2 ** 31)).rejects.toMatchObject({ code: "EEXIST" });
});
