import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { contentOf } from "./durable-file.ts";
import { describeGuestAgent } from "./guest-agent.ts";
import { buildImage } from "./image-builder.ts";
import { recipeDigest, recipes } from "./recipe.ts";

/** Parts are put there by hand, as a build would leave them, so nothing is downloaded. */
let directory: string;
let guestAgentPath: string;

beforeEach(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-build-"));
  guestAgentPath = path.join(directory, "agent");
  await writeFile(guestAgentPath, "\0perdure-guest 0.1.0 protocol 1\0");
  const kernel = path.join(directory, "parts", `kernel-${recipeDigest(recipes.tiny.kernel)}`);
  await mkdir(kernel, { recursive: true });
  await writeFile(path.join(kernel, "vmlinuz"), "kernel");
  await writeFile(path.join(kernel, "virtio.ko"), "module");
  await writePart(kernel, {
    release: "6.1.0-test",
    kernel: await contentOf(path.join(kernel, "vmlinuz")),
    modules: ["virtio"],
  });
  if (recipes.debian.rootfs === null) throw new Error("The default image has a root file system");
  const rootfs = path.join(directory, "parts", `rootfs-${recipeDigest(recipes.debian.rootfs)}`);
  await mkdir(rootfs);
  await writeFile(path.join(rootfs, "rootfs.ext4"), "file system");
  await writePart(rootfs, {
    rootfs: await contentOf(path.join(rootfs, "rootfs.ext4")),
    packages: [{ name: "bash", version: "5.2" }],
  });
});

afterEach(() => rm(directory, { recursive: true }));

async function writePart(part: string, record: unknown): Promise<void> {
  await writeFile(path.join(part, "part.json"), JSON.stringify(record));
}

test("an image is whole, read-only, named, and described by its record", async () => {
  const image = await buildImage({ directory, name: "debian", kind: "debian", guestAgentPath });
  expect(image.commandLine).toContain("perdure.root=/dev/vda");
  expect(image.kernelVersion).toBe("6.1.0-test");
  expect(image.guestAgent).toMatchObject({ version: "0.1.0", protocol: 1 });
  expect(image.packages).toEqual([{ name: "bash", version: "5.2" }]);
  for (const file of [image.kernel, image.initramfs, image.rootfs]) {
    if (file === null) throw new Error("The default image has a root file system");
    expect(await contentOf(file.path)).toEqual({ sha256: file.sha256, bytes: file.bytes });
    expect((await stat(file.path)).mode & 0o777).toBe(0o444);
  }
  expect((await stat(path.dirname(image.kernel.path))).mode & 0o777).toBe(0o755);
  expect((await readFile(path.join(directory, "names/debian"), "utf8")).trim()).toBe(image.id);
});

test("the same build gives the same image", async () => {
  const options = { directory, name: "debian", kind: "debian", guestAgentPath } as const;
  const first = await buildImage(options);
  const before = await stat(first.initramfs.path);
  expect(await buildImage(options)).toEqual(first);
  expect((await stat(first.initramfs.path)).ino).toBe(before.ino);
});

test("a new guest agent gives a new image that shares the rest", async () => {
  const first = await buildImage({ directory, name: "debian", kind: "debian", guestAgentPath });
  await writeFile(guestAgentPath, "perdure-guest 0.2.0 protocol 2");
  const second = await buildImage({ directory, name: "debian", kind: "debian", guestAgentPath });
  expect(second.id).not.toBe(first.id);
  expect(second.guestAgent).toMatchObject({ version: "0.2.0", protocol: 2 });
  if (first.rootfs === null || second.rootfs === null) throw new Error("No root file system");
  expect((await stat(second.rootfs.path)).ino).toBe((await stat(first.rootfs.path)).ino);
});

test("a tiny image has no root file system", async () => {
  const image = await buildImage({ directory, name: "tiny", kind: "tiny", guestAgentPath });
  expect(image.rootfs).toBeNull();
  expect(image.packages).toEqual([]);
  expect(image.commandLine).toContain("perdure.root=none");
});

test("what a killed build left behind is removed by the next one", async () => {
  await mkdir(path.join(directory, ".building-abc", "tree"), { recursive: true });
  await mkdir(path.join(directory, "parts", ".building-def"));
  await buildImage({ directory, name: "tiny", kind: "tiny", guestAgentPath });
  const names = [...(await readdir(directory)), ...(await readdir(path.join(directory, "parts")))];
  expect(names.filter((name) => name.startsWith(".building-"))).toEqual([]);
});

test("a directory of the image's id that is not whole is replaced", async () => {
  const options = { directory, name: "tiny", kind: "tiny", guestAgentPath } as const;
  const { id, kernel } = await buildImage(options);
  await rm(kernel.path);
  expect((await buildImage(options)).id).toBe(id);
  expect(await readFile(kernel.path, "utf8")).toBe("kernel");
});

test("two builders at once give one image", async () => {
  const options = { directory, name: "tiny", kind: "tiny", guestAgentPath } as const;
  const [first, second] = await Promise.all([buildImage(options), buildImage(options)]);
  expect(first).toEqual(second);
});

test("a missing guest agent and a bad name are refused", async () => {
  const options = { directory, name: "tiny", kind: "tiny" } as const;
  await expect(
    buildImage({ ...options, guestAgentPath: path.join(directory, "absent") }),
  ).rejects.toMatchObject({ code: "image_build_failed" });
  await expect(buildImage({ ...options, name: "../tiny", guestAgentPath })).rejects.toMatchObject({
    code: "bad_request",
  });
});

test("a guest agent without its line has an unknown version", () => {
  expect(describeGuestAgent(Buffer.from("program"))).toMatchObject({ version: "unknown" });
});
