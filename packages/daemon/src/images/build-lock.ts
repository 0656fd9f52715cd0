/**
 * One builder at a time in an images directory. The kernel holds the lock for a child of this
 * process that waits for the end of its standard input, so the lock ends with its owner however
 * that ends: there is no stale lock to break.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, open } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import { cleanEnvironment } from "./tool-process.ts";

/** Runs `work` while holding an exclusive lock on `path`, which is created where absent. */
export async function withLock<T>(
  path: string,
  work: () => Promise<T>,
  onWait?: () => void,
): Promise<T> {
  // Whoever can open the file can hold the lock, and VM processes pass through this directory.
  try {
    await (await open(path, "a", 0o600)).close();
    await chmod(path, 0o600);
  } catch (error) {
    throw PerdureError.from(error, "image_build_failed");
  }
  const holder = spawn(
    "flock",
    ["--exclusive", path, "sh", "-c", "echo held; exec cat >/dev/null"],
    {
      env: cleanEnvironment(),
      stdio: ["pipe", "pipe", "ignore"],
      detached: true, // a Ctrl-C at the terminal must not let go of the lock before its owner ends
    },
  );
  const ended = new Promise<void>((resolve) => {
    holder.on("close", () => resolve());
    holder.on("error", () => resolve());
  });
  const patience = setTimeout(() => onWait?.(), 500);
  const held = await Promise.race([once(holder.stdout, "data").then(() => true), ended]);
  clearTimeout(patience);
  if (held !== true) {
    throw new PerdureError("image_build_failed", `Cannot lock "${path}" with "flock"`, {
      hint: "Install util-linux and check that the directory can be written.",
    });
  }
  try {
    return await work();
  } finally {
    holder.stdin.end();
    await ended;
  }
}
