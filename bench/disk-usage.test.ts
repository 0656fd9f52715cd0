import { link, mkdir, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { diskUsage } from "./disk-usage.ts";

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "perdure-bench-"));
});
afterEach(() => rm(folder, { recursive: true }));

async function whole(name: string, bytes: number): Promise<void> {
  await writeFile(path.join(folder, name), Buffer.alloc(bytes, 1));
}

test("allocated blocks count, holes do not", async () => {
  await mkdir(path.join(folder, "in"));
  const empty = await diskUsage(path.join(folder, "in"));
  await whole("in/a", 64 * 1024);
  const file = await open(path.join(folder, "in/holes"), "w");
  await file.truncate(1024 * 1024 * 1024);
  await file.close();
  const used = (await diskUsage(path.join(folder, "in"))) - empty;
  expect(used).toBeGreaterThanOrEqual(64 * 1024);
  expect(used).toBeLessThan(80 * 1024);
});

test("a file with two names counts once, one shared with the outside only when asked", async () => {
  await mkdir(path.join(folder, "in"));
  await whole("outside", 256 * 1024);
  await link(path.join(folder, "outside"), path.join(folder, "in/shared"));
  await whole("in/a", 64 * 1024);
  await link(path.join(folder, "in/a"), path.join(folder, "in/b"));
  const alone = await diskUsage(path.join(folder, "in"));
  expect(alone).toBeLessThan(128 * 1024);
  const all = await diskUsage(path.join(folder, "in"), { shared: true });
  expect(all - alone).toBeGreaterThanOrEqual(256 * 1024);
});

test("parts can be left out, and a folder that is not there uses nothing", async () => {
  await mkdir(path.join(folder, "in/run"), { recursive: true });
  await whole("in/run/log", 256 * 1024);
  expect(await diskUsage(path.join(folder, "in"), { without: ["run"] })).toBeLessThan(64 * 1024);
  expect(await diskUsage(path.join(folder, "none"))).toBe(0);
});
