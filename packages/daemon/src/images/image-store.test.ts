import { execFileSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { sha256Hex } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { contentOf } from "./durable-file.ts";
import { fileNames, imageId, readRecord, writeRecord } from "./image-record.ts";
import type { ImageRecord } from "./image-record.ts";
import { createImageStore, defaultImagesDirectory } from "./image-store.ts";

const digest = sha256Hex("recipe") as Digest;

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-images-"));
  await mkdir(path.join(directory, "names"));
});

afterEach(() => rm(directory, { recursive: true }));

/** Puts an image there by hand; `rootfs` is a whole file system, or absent. */
async function putImage(name: string, kernel: string, rootfs?: string): Promise<string> {
  const at = await mkdtemp(path.join(directory, "new-"));
  await writeFile(path.join(at, fileNames.kernel), kernel);
  await writeFile(path.join(at, fileNames.initramfs), "initramfs");
  const record: ImageRecord = {
    version: 1,
    name,
    kernel: await contentOf(path.join(at, fileNames.kernel)),
    initramfs: await contentOf(path.join(at, fileNames.initramfs)),
    rootfs: rootfs === undefined ? null : await contentOf(rootfs),
    kernelVersion: "6.1.0",
    commandLine: "quiet",
    guestAgent: { sha256: digest, version: "0.1.0", protocol: 1 },
    packages: [{ name: "bash", version: "5.2" }],
    recipe: digest,
  };
  const id = imageId(record);
  await writeFile(path.join(at, "image.json"), writeRecord(record));
  if (rootfs !== undefined) execFileSync("cp", [rootfs, path.join(at, fileNames.rootfs)]);
  await chmod(at, 0o755);
  execFileSync("mv", [at, path.join(directory, id)]);
  await writeFile(path.join(directory, "names", name), `${id}\n`);
  return id;
}

test("an image is found by its name and by its id", async () => {
  const store = createImageStore(directory);
  const id = await putImage("tiny", "kernel");
  const image = await store.resolve("tiny");
  expect(image).toMatchObject({ id, name: "tiny", rootfs: null, commandLine: "quiet" });
  expect(image.kernel.path).toBe(path.join(directory, id, "vmlinuz"));
  expect(image.kernel.sha256).toBe(sha256Hex("kernel"));
  expect(await store.resolve(id)).toEqual(image);
});

test("a name follows the newest build, and the older image stays", async () => {
  const store = createImageStore(directory);
  const older = await putImage("tiny", "kernel 1");
  const newer = await putImage("tiny", "kernel 2");
  expect((await store.resolve("tiny")).id).toBe(newer);
  expect((await store.resolve(older)).id).toBe(older);
  expect((await store.list()).map(({ id }) => id)).toEqual([older, newer].sort());
});

test.each(["absent", "../names/tiny", "", "0".repeat(64)])(
  "an image %j that is not there is image_not_found",
  async (name) => {
    await putImage("tiny", "kernel");
    const store = createImageStore(directory);
    await expect(store.resolve(name)).rejects.toMatchObject({ code: "image_not_found" });
  },
);

test("a name that is not there is told with those that are, and the nearest of them", async () => {
  for (const name of ["debian", "tiny"]) await putImage(name, `kernel of ${name}`);
  const store = createImageStore(directory);
  const refusal = async (name: string): Promise<{ message: string; hint: string }> =>
    store.resolve(name).then(
      () => expect.fail("resolved"),
      (error: unknown) => error as { message: string; hint: string },
    );
  for (const typo of ["debain", "Debian", "debian12", "dbian"]) {
    expect(await refusal(typo)).toMatchObject({
      code: "image_not_found",
      message: `Cannot use image "${typo}": there is none; there are "debian", "tiny"`,
      hint: 'Did you mean "debian"?',
    });
  }
  for (const other of ["ubuntu", "", "0".repeat(64)]) {
    const { message, hint } = await refusal(other);
    expect(message).toContain('there are "debian", "tiny"');
    expect(hint).toBe("Choose one of those.");
  }
});

test("a directory that does not exist holds no images", async () => {
  const store = createImageStore(path.join(directory, "absent"));
  expect(await store.list()).toEqual([]);
  await expect(store.resolve("debian")).rejects.toMatchObject({
    code: "image_not_found",
    message: 'Cannot use image "debian": there is none',
    hint: expect.stringContaining("npm run setup") as string,
  });
});

test("an image with a shortened or absent file is not used", async () => {
  const store = createImageStore(directory);
  const id = await putImage("tiny", "kernel");
  await truncate(path.join(directory, id, "vmlinuz"), 3);
  await expect(store.resolve("tiny")).rejects.toMatchObject({ code: "image_not_found" });
  expect(await store.list()).toEqual([]);
  await rm(path.join(directory, id, "vmlinuz"));
  await expect(store.resolve(id)).rejects.toMatchObject({ code: "image_not_found" });
});

test("an image whose record does not give its id is not used", async () => {
  const store = createImageStore(directory);
  const id = await putImage("tiny", "kernel");
  const other = sha256Hex("other");
  execFileSync("mv", [path.join(directory, id), path.join(directory, other)]);
  await expect(store.resolve(other)).rejects.toMatchObject({ code: "image_not_found" });
});

test("records of another version or shape are not read", () => {
  expect(readRecord("")).toBeNull();
  expect(readRecord("{}")).toBeNull();
  expect(readRecord('{"version":2}')).toBeNull();
});

test("images are kept where PERDURE_IMAGES says, else where the user may write", () => {
  expect(defaultImagesDirectory({ PERDURE_IMAGES: "/data/images" }, 0)).toBe("/data/images");
  expect(defaultImagesDirectory({ HOME: "/root" }, 0)).toBe("/var/lib/perdure/images");
  expect(defaultImagesDirectory({ HOME: "/home/ann" }, 1000)).toBe(
    "/home/ann/.local/share/perdure/images",
  );
});
