import { execFileSync } from "node:child_process";
import { mkdtemp, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { MachineId } from "@perdure/protocol";
import { checkRunDir, RunFolder } from "./run-folder.ts";

let root: string;
let folder: RunFolder;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "perdure-run-"));
  folder = new RunFolder(root, "vm_01m8m0yvmk3982wqn8bkmk488e" as MachineId);
  await folder.make({ uid: 0, gid: 0, tenantGid: 0 }, false);
});

afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

test("a file of the VM process is read and removed", async () => {
  await writeFile(folder.devicesPath, "state");
  expect(Buffer.from(await folder.takeFile(folder.devicesPath, 100)).toString()).toBe("state");
  await expect(stat(folder.devicesPath)).rejects.toThrow("ENOENT");
});

test("a link, a pipe, a folder and a file that is too large are refused", async () => {
  const secret = join(root, "secret");
  await writeFile(secret, "secret");
  await symlink(secret, folder.devicesPath);
  await expect(folder.takeFile(folder.devicesPath, 100)).rejects.toThrow();
  await rm(folder.devicesPath, { force: true });
  execFileSync("mkfifo", [folder.devicesPath]);
  await expect(folder.takeFile(folder.devicesPath, 100)).rejects.toThrow("not a regular file");
  await writeFile(folder.devicesPath, "x".repeat(101));
  await expect(folder.takeFile(folder.devicesPath, 100)).rejects.toThrow("more than 100");
  await expect(folder.takeFile(folder.io, 100)).rejects.toThrow();
});

test("what is no socket is not taken for one", async () => {
  await writeFile(folder.monitorBirthPath, "");
  await writeFile(folder.linkBirthPath, "");
  await expect(folder.keepSockets()).rejects.toThrow("not a socket");
});

test("notes come back as they were, or not at all", async () => {
  expect(await folder.readLayers()).toEqual([]);
  await folder.writeLayers(["/a", "/b"]);
  expect(await folder.readLayers()).toEqual(["/a", "/b"]);
  expect(await folder.readNote()).toBeNull();
});

test("a run directory with too long a path is refused before anything starts", () => {
  expect(() => checkRunDir(`/run/${"x".repeat(80)}`)).toThrow("too long");
  expect(() => checkRunDir("/var/lib/perdure/run/vm")).not.toThrow();
});
