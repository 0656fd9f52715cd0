import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { lockHolder, withFileLock } from "./file-lock.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-lock-"));
});

afterEach(() => rm(directory, { recursive: true }));

test("work under one lock never overlaps", async () => {
  const lock = path.join(directory, "lock");
  let inside = 0;
  let most = 0;
  const work = async (): Promise<void> => {
    most = Math.max(most, ++inside);
    await new Promise((resolve) => setTimeout(resolve, 20));
    inside--;
  };
  await Promise.all([1, 2, 3, 4].map(() => withFileLock(lock, work)));
  expect(most).toBe(1);
});

test("the lock is let go when the work fails", async () => {
  const lock = path.join(directory, "lock");
  const failing = withFileLock(lock, () => Promise.reject(new Error("broken")));
  await expect(failing).rejects.toThrow("broken");
  expect(await withFileLock(lock, () => Promise.resolve("free"))).toBe("free");
});

test("the lock of a process that was killed is free", async () => {
  const lock = path.join(directory, "lock");
  const module = path.join(import.meta.dirname, "file-lock.ts");
  // A promise that nobody holds may be collected, and the lock that waits for it with it.
  const script = `import { withFileLock } from ${JSON.stringify(module)};
    globalThis.never = new Promise(() => setInterval(() => 0, 1000));
    await withFileLock(${JSON.stringify(lock)}, () => { console.log("held"); return globalThis.never; });`;
  const owner = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => void owner.kill("SIGKILL"));
  await once(owner.stdout, "data");
  let waited = false;
  const next = withFileLock(
    lock,
    () => Promise.resolve(true),
    () => {
      waited = true;
      owner.kill("SIGKILL");
    },
  );
  expect(await next).toBe(true);
  expect(waited).toBe(true);
});

test("the lock is for its owner alone to open", async () => {
  const lock = path.join(directory, "lock");
  await writeFile(lock, "", { mode: 0o644 });
  const mode = await withFileLock(lock, async () => (await stat(lock)).mode & 0o777);
  expect(mode).toBe(0o600);
});

test("a lock that cannot be made is an error", async () => {
  const lock = path.join(directory, "absent", "lock");
  await expect(withFileLock(lock, () => Promise.resolve())).rejects.toMatchObject({
    code: "ENOENT",
  });
});

test("whoever holds the lock is known while it holds it, and nobody after", async () => {
  const lock = path.join(directory, "lock");
  expect(await lockHolder(lock)).toBeNull();
  await withFileLock(lock, async () => {
    expect(await lockHolder(lock)).toBe(process.pid);
    expect(await lockHolder(path.join(directory, "other"))).toBeNull();
  });
  expect(await lockHolder(lock)).toBeNull();
});
