/** What the parts of the `wake` benchmark share: the image, a folder, the daemon, the settings. */
import { execFile } from "node:child_process";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { createImageStore, defaultImagesDirectory } from "@perdure/daemon/images/image-store.ts";
import type { Context } from "../benchmark.ts";
import { openBenchFolder } from "../ours/bench-folder.ts";
import { Daemon } from "../ours/daemon.ts";
import type { StockPlan } from "../stock/stock-guest.ts";

const MIB = 1024 * 1024;

export interface Place {
  readonly context: Context;
  readonly daemon: Daemon;
  /** The size of every agent and stock guest: 512 MiB, 1 CPU, 8 GiB of disk. */
  readonly shape: { readonly memoryBytes: number; readonly diskBytes: number };
  readonly stock: StockPlan;
}

export const memoryBytes = 512 * MIB;
const diskBytes = 8 * 1024 * MIB;

/**
 * Opens all of it below a new folder. The images are the host's own, so that image and template need not
 * be built again.
 */
export async function openPlace(context: Context): Promise<Place> {
  const { cleanup, machine } = context;
  const { rootfs, ...image } = await createImageStore(defaultImagesDirectory()).resolve("debian");
  if (rootfs === null) throw new Error("The image has no root file system");
  const folder = await openBenchFolder(cleanup);
  const [home, stockFolder] = [path.join(folder, "home"), path.join(folder, "stock")];
  await mkdir(home, { mode: 0o711 });
  await mkdir(stockFolder, { mode: 0o700 });
  context.progress("starting the daemon");
  const daemon = await Daemon.start(home, cleanup);
  return {
    context,
    daemon,
    shape: { memoryBytes, diskBytes },
    stock: {
      image: { ...image, rootfs },
      memoryBytes,
      diskBytes,
      accelerator: machine.accelerator,
      folder: stockFolder,
      cleanup,
    },
  };
}

/** Keeps a process off the CPU while something else is measured. */
export async function without<T>(pid: number, work: () => Promise<T>): Promise<T> {
  process.kill(pid, "SIGSTOP");
  try {
    return await work();
  } finally {
    process.kill(pid, "SIGCONT");
  }
}

/**
 * A breath for what runs on its own: timers inside, and writes to the disk. What one side left to write
 * (a large file that was removed is discarded with the next commit) is not to slow the other down.
 */
export async function settle(): Promise<void> {
  await promisify(execFile)("sync");
  await sleep(300);
}
