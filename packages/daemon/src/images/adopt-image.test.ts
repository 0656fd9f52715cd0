/** An image that comes with an agent: whole under its id, or not there. */
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { sha256Hex } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { withFileLock } from "../file-lock.ts";
import type { ImageFile } from "../core/ports/image-source.ts";
import { imageId, writeRecord } from "./image-record.ts";
import type { ImageRecord } from "./image-record.ts";
import { createImageStore } from "./image-store.ts";

let folder: string;
let directory: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), "perdure-adopt-"));
  directory = path.join(folder, "images");
});
afterEach(() => rm(folder, { recursive: true }));

async function file(name: string, text: string): Promise<ImageFile> {
  const at = path.join(folder, name);
  await writeFile(at, text);
  return { path: at, sha256: sha256Hex(text) as Digest, bytes: text.length };
}

async function sample(change: Partial<ImageRecord> = {}) {
  const files = {
    kernel: await file("k", "kernel"),
    initramfs: await file("i", "initramfs"),
    rootfs: await file("r", "root"),
  };
  const content = ({ sha256, bytes }: ImageFile) => ({ sha256, bytes });
  const record: ImageRecord = {
    version: 1,
    name: "debian",
    kernel: content(files.kernel),
    initramfs: content(files.initramfs),
    rootfs: content(files.rootfs),
    kernelVersion: "6.1.0",
    commandLine: "quiet",
    guestAgent: { sha256: sha256Hex("a") as Digest, version: "0.1.0", protocol: 1 },
    packages: [],
    recipe: sha256Hex("recipe") as Digest,
    ...change,
  };
  return { record, files, description: writeRecord(record) };
}

test("is found by its id and has no name", async () => {
  const store = createImageStore(directory);
  const { record, files, description } = await sample();
  const adopted = await store.adopt(description, files);
  expect(adopted.id).toBe(imageId(record));
  expect(await store.resolve(adopted.id)).toEqual(adopted);
  expect(await store.describe(adopted.id)).toBe(description);
  await expect(store.resolve("debian")).rejects.toMatchObject({ code: "image_not_found" });
  for (const role of ["kernel", "initramfs"] as const) {
    expect((await stat(adopted[role].path)).mode & 0o777).toBe(0o444);
  }
});

test("that is there already is left as it is", async () => {
  const store = createImageStore(directory);
  const { files, description } = await sample();
  const { kernel } = await store.adopt(description, files);
  const before = await stat(kernel.path);
  await store.adopt(description, files);
  expect((await stat(kernel.path)).ino).toBe(before.ino);
  expect((await readdir(directory)).filter((name) => name.startsWith(".building"))).toEqual([]);
});

test("whose files or words are others is refused, and leaves nothing", async () => {
  const store = createImageStore(directory);
  const { files, description, record } = await sample();
  const other = await file("o", "another");
  for (const [words, from] of [
    [description, { ...files, kernel: other }],
    [description, { ...files, rootfs: null }],
    ["{}", files],
    ["", files],
    [writeRecord({ ...record, name: "../x" }), files],
    [writeRecord({ ...record, commandLine: "quiet\ninit=/bin/sh" }), files],
    [writeRecord({ ...record, commandLine: "x".repeat(5000) }), files],
  ] as const) {
    await expect(store.adopt(words, from)).rejects.toMatchObject({ code: "export_invalid" });
  }
  expect(await store.list()).toEqual([]);
});

test("leftovers of one that died are tidied away, unless a builder is at work", async () => {
  const store = createImageStore(directory);
  await store.tidy();
  await mkdir(path.join(directory, ".building-x"), { recursive: true });
  const lock = path.join(directory, ".lock");
  await withFileLock(lock, () => store.tidy());
  expect(await readdir(directory)).toContain(".building-x");
  await store.tidy();
  expect(await readdir(directory)).not.toContain(".building-x");
});
