/**
 * The same guest under stock QEMU: booted, saved whole to a file, restored from it. Nothing here is
 * slower than it must be: the file is open before, the process that restores is started before, the
 * bandwidth has no limit, the guest is stopped before it is saved, and nothing is flushed to the disk.
 */
import { execFile } from "node:child_process";
import { copyFile, rm, stat } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { createGuestLinks } from "@perdure/daemon/guest-link/open.ts";
import type { GuestLink } from "@perdure/daemon/core/ports/guest-link.ts";
import type { Image } from "@perdure/daemon/core/ports/image-source.ts";
import type { Cleanup } from "../cleanup.ts";
import { warmUp, run, type Inside, type Program } from "../inside.ts";
import { stockArguments } from "./command-line.ts";
import { RESTORE_FD, StockProcess } from "./stock-process.ts";

export interface StockPlan {
  readonly image: Image & { readonly rootfs: NonNullable<Image["rootfs"]> };
  readonly memoryBytes: number;
  readonly diskBytes: number;
  readonly accelerator: string;
  /** Folder for disks, state files and sockets. */
  readonly folder: string;
  readonly cleanup: Cleanup;
}

/** State and disk of one instant. */
export interface SavedGuest {
  readonly statePath: string;
  readonly overlayPath: string;
  readonly bytes: number;
}

export interface RestoreTimes {
  /** From `migrate-incoming` until the guest runs. */
  readonly runningMs: number;
  /** Until its guest agent has answered for the first time. */
  readonly readyMs: number;
}

const BOOT_MS = 180_000;
const ANSWER_MS = 20_000;
const BLOCK = 512;
/** Bytes per second; QEMU takes no infinity. */
const UNLIMITED = 2 ** 40;
/** What QEMU uses where nobody says otherwise. */
export const BANDWIDTH_DEFAULT = 128 * 1024 * 1024;
let count = 0;

export class StockGuest implements Inside {
  readonly #process: StockProcess;
  readonly #link: GuestLink;
  readonly #overlayPath: string;
  readonly #statePrefix: string;
  #saves = 0;

  private constructor(
    process: StockProcess,
    link: GuestLink,
    overlayPath: string,
    statePrefix: string,
  ) {
    this.#process = process;
    this.#link = link;
    this.#overlayPath = overlayPath;
    this.#statePrefix = statePrefix;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Boots the image. The warm-up programs have run when this resolves. */
  static async boot(plan: StockPlan): Promise<StockGuest> {
    const name = `guest${count++}`;
    const overlayPath = path.join(plan.folder, `${name}.qcow2`);
    const { rootfs } = plan.image;
    const create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", rootfs.path, overlayPath];
    await promisify(execFile)("qemu-img", [...create, String(plan.diskBytes)]);
    const { process, link } = await started(plan, name, overlayPath, null);
    const guest = new StockGuest(process, link, overlayPath, path.join(plan.folder, name));
    await link.sync(0, BOOT_MS);
    await link.setClock(ANSWER_MS);
    link.letOut();
    for (const argv of warmUp) await run(guest, argv);
    await link.flush(ANSWER_MS);
    return guest;
  }

  async start(argv: readonly string[]): Promise<Program> {
    const link = this.#link;
    const { process } = await link.exec({ argv, env: {}, user: "user", stdin: false });
    return {
      output: (offset) => link.attach(process, offset),
      signal: (number) => link.signal(process, number, false, ANSWER_MS),
    };
  }

  /**
   * Stops the guest and saves all of it to a file. It stays stopped.
   *
   * @returns ms from `stop` until the file is complete
   */
  async save(): Promise<{ ms: number; statePath: string }> {
    const { monitor } = this.#process;
    const statePath = `${this.#statePrefix}.${this.#saves++}`;
    await monitor.giveFile(statePath, "state");
    const ended = monitor.next(migrationEnded);
    const begin = performance.now();
    await monitor.execute("stop");
    await monitor.execute("migrate", { uri: "fd:state" });
    await ended;
    const ms = performance.now() - begin;
    const { status } = (await monitor.execute("query-migrate")) as { status: string };
    if (status !== "completed") throw new Error(`Stock QEMU's save ${status}`);
    return { ms, statePath };
  }

  /** Limits the bandwidth of saves; there is no limit to begin with. */
  async limitBandwidth(bytesPerSecond: number): Promise<void> {
    await this.#process.monitor.execute("migrate-set-parameters", {
      "max-bandwidth": bytesPerSecond,
    });
  }

  /** Goes on after a save, as soon as QEMU has put the migration behind it. */
  async go(): Promise<void> {
    const end = performance.now() + ANSWER_MS;
    for (;;) {
      try {
        await this.#process.monitor.execute("cont");
        return;
      } catch (error) {
        if (performance.now() > end) throw error;
      }
    }
  }

  /** Saves state and disk of one instant for `restore`, then goes on. */
  async keep(): Promise<SavedGuest> {
    await this.#link.flush(ANSWER_MS);
    const { statePath } = await this.save();
    const overlayPath = `${statePath}.qcow2`;
    await copyFile(this.#overlayPath, overlayPath);
    await this.go();
    const { blocks } = await stat(statePath);
    return { statePath, overlayPath, bytes: blocks * BLOCK };
  }

  async end(): Promise<void> {
    this.#link.close("the benchmark is done with it");
    await this.#process.end();
    await rm(this.#overlayPath, { force: true });
  }

  /** Restores into a process that was started before and has settled, and ends it again. */
  static async restore(
    plan: StockPlan,
    saved: SavedGuest,
    settle: () => Promise<void>,
  ): Promise<RestoreTimes> {
    const name = `restored${count++}`;
    const overlayPath = path.join(plan.folder, `${name}.qcow2`);
    await copyFile(saved.overlayPath, overlayPath);
    const { process, link } = await started(plan, name, overlayPath, saved.statePath);
    const { monitor } = process;
    try {
      await settle();
      const ended = monitor.next(migrationEnded);
      const begin = performance.now();
      await monitor.execute("migrate-incoming", { uri: `fd:${RESTORE_FD}` });
      await ended;
      await monitor.execute("cont");
      const runningMs = performance.now() - begin;
      await link.sync(0, ANSWER_MS);
      const readyMs = performance.now() - begin;
      const { status } = (await monitor.execute("query-status")) as { status: string };
      if (status !== "running") throw new Error(`The restored guest is ${status}`);
      return { runningMs, readyMs };
    } finally {
      link.close("measured");
      await process.end();
      await rm(overlayPath, { force: true });
    }
  }
}

async function started(
  plan: StockPlan,
  name: string,
  overlayPath: string,
  statePath: string | null,
): Promise<{ process: StockProcess; link: GuestLink }> {
  const { image, cleanup } = plan;
  const linkPath = path.join(plan.folder, `${name}.link`);
  const monitorPath = path.join(plan.folder, `${name}.qmp`);
  const args = stockArguments(
    {
      kernelPath: image.kernel.path,
      initramfsPath: image.initramfs.path,
      commandLine: image.commandLine,
      overlayPath,
      monitorPath,
      linkPath,
      memoryMib: plan.memoryBytes / (1024 * 1024),
      incoming: statePath !== null,
    },
    plan.accelerator,
  );
  const process = await StockProcess.start(args, monitorPath, statePath, cleanup);
  await process.monitor.execute("migrate-set-capabilities", {
    capabilities: [{ capability: "events", state: true }],
  });
  await process.monitor.execute("migrate-set-parameters", { "max-bandwidth": UNLIMITED });
  return { process, link: await createGuestLinks().connect(linkPath) };
}

function migrationEnded(event: string, data: Readonly<Record<string, unknown>>): boolean {
  return event === "MIGRATION" && ["completed", "failed"].includes(String(data["status"]));
}
