/** A home for machines of one test file: folders, clock, and substrates that are closed with it. */
import { randomBytes } from "node:crypto";
import { chmod, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Clock } from "../../packages/daemon/src/core/ports/clock.ts";
import type { Log } from "../../packages/daemon/src/core/ports/log.ts";
import type { UidRange } from "../../packages/daemon/src/substrate/qemu/isolation.ts";
import {
  openQemuSubstrate,
  type QemuSubstrate,
} from "../../packages/daemon/src/substrate/qemu/qemu-substrate.ts";

/** Time as it is, or `speed` times as fast where only deadlines matter. */
export function testClock(speed = 1): Clock {
  return {
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now() * speed,
    randomBytes: (count) => new Uint8Array(randomBytes(count)),
    wait: (ms, signal) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms / speed);
        signal?.addEventListener("abort", () => {
          clearTimeout(timer);
          reject(signal.reason as Error);
        });
      }),
  };
}

export interface OpenOptions {
  readonly accelerator?: "auto" | "tcg" | "kvm";
  readonly clock?: Clock;
  /** Users of their own for VM processes; needs root. */
  readonly own?: boolean;
}

export class TestHome {
  readonly path: string;
  readonly homeId: string;
  readonly logged: string[] = [];
  readonly #substrates: QemuSubstrate[] = [];
  #files = 0;

  private constructor(path: string, homeId: string) {
    this.path = path;
    this.homeId = homeId;
  }

  static async make(): Promise<TestHome> {
    const path = await mkdtemp(join(tmpdir(), "perdure-vm-"));
    await chmod(path, 0o711);
    await mkdir(join(path, "run"));
    await mkdir(join(path, "data"));
    return new TestHome(path, randomBytes(6).toString("hex"));
  }

  get runDir(): string {
    return join(this.path, "run");
  }

  /** A path inside of the data directory that was not used before; its folder exists. */
  async newPath(name: string): Promise<string> {
    const folder = join(this.path, "data", String(++this.#files));
    await mkdir(folder);
    return join(folder, name);
  }

  async open(options: OpenOptions = {}): Promise<QemuSubstrate> {
    const log: Log = (level, message, facts) =>
      void this.logged.push(`${level} ${message} ${JSON.stringify(facts ?? {})}`);
    const range: UidRange = { first: 1_900_000_000, count: 1000 };
    const substrate = await openQemuSubstrate({
      homeId: this.homeId,
      runDir: this.runDir,
      dataDir: join(this.path, "data"),
      accelerator: options.accelerator ?? "tcg",
      clock: options.clock ?? testClock(),
      log,
      ...(options.own === true ? { uidRange: range } : {}),
      tenantGid: (tenant) => range.first + (tenant === "other" ? 2001 : 2000),
    });
    this.#substrates.push(substrate);
    return substrate;
  }

  /** Ends everything. Throws where a machine left something behind. */
  async close(): Promise<void> {
    for (const substrate of this.#substrates) await substrate.close();
    const last = await this.open({ own: process.getuid?.() === 0 });
    await last.sweep([]);
    await last.close();
    const left = await readdir(this.runDir);
    await rm(this.path, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`Run folders are left: ${left.join(", ")}`);
  }
}
