/**
 * Which accelerator this host can be trusted with. /dev/kvm can exist, open and create a VM, and still
 * not run a stock kernel (nested, paravirtual): so the kernel in question is booted under it once, with
 * a deadline, and the verdict is remembered.
 *
 * - I1 A verdict holds for one host boot, QEMU version and kernel; never longer.
 * - I2 `auto` means KVM only where a boot proved it; otherwise emulation, with the reason said.
 * - I3 One probe at a time per kernel; those who ask meanwhile wait for it.
 */
import { access, constants, mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { Log } from "../../core/ports/log.ts";
import type { BootFiles } from "../../core/ports/substrate.ts";
import type { Accelerator } from "./command-line.ts";
import { hostBootId } from "./process.ts";

export interface Verdict {
  readonly accelerator: Accelerator;
  readonly reason: string;
}

export interface AccelerationOptions {
  readonly wanted: "auto" | Accelerator;
  readonly qemuVersion: string;
  /** File that remembers verdicts. */
  readonly cachePath: string;
  /** Why KVM need not even be tried, or null. */
  unusable(): Promise<string | null>;
  /** Boots under KVM; resolves with how it went. */
  probe(boot: BootFiles): Promise<{ readonly booted: boolean; readonly detail: string }>;
  readonly log: Log;
}

export class Acceleration {
  readonly #options: AccelerationOptions;
  readonly #known = new Map<string, Promise<Verdict>>();
  #last: Verdict | null = null;

  constructor(options: AccelerationOptions) {
    this.#options = options;
  }

  /** The last verdict, for `doctor`; null before the first question. */
  get last(): Verdict | null {
    return this.#last;
  }

  async choose(boot: BootFiles): Promise<Verdict> {
    const { wanted } = this.#options;
    if (wanted !== "auto") {
      this.#last = { accelerator: wanted, reason: `The settings say "${wanted}"` };
      return this.#last;
    }
    const key = [hostBootId(), this.#options.qemuVersion, boot.kernelDigest].join(" ");
    let verdict = this.#known.get(key);
    if (verdict === undefined) {
      verdict = this.#find(key, boot);
      this.#known.set(key, verdict);
      verdict.catch(() => this.#known.delete(key));
    }
    this.#last = await verdict;
    return this.#last;
  }

  async #find(key: string, boot: BootFiles): Promise<Verdict> {
    const unusable = await this.#options.unusable();
    if (unusable !== null) return this.#say({ accelerator: "tcg", reason: unusable });
    const cached = (await this.#read())[key];
    if (cached !== undefined) return this.#say(cached);
    const { booted, detail } = await this.#options.probe(boot);
    const verdict: Verdict = booted
      ? { accelerator: "kvm", reason: `A probe boot under KVM worked: ${detail}` }
      : { accelerator: "tcg", reason: `A probe boot under KVM did not work: ${detail}` };
    await this.#write(key, verdict);
    return this.#say(verdict);
  }

  #say(verdict: Verdict): Verdict {
    this.#options.log(
      verdict.accelerator === "kvm" ? "info" : "warn",
      verdict.accelerator === "kvm"
        ? "VMs run with hardware acceleration"
        : "VMs run under software emulation, several times slower than hardware",
      { reason: verdict.reason },
    );
    return verdict;
  }

  async #read(): Promise<Record<string, Verdict>> {
    try {
      const text = await readFile(this.#options.cachePath, "utf8");
      const all = JSON.parse(text) as Record<string, Verdict>;
      // Those of earlier boots of the host are of no use any more.
      return Object.fromEntries(
        Object.entries(all).filter(([key]) => key.startsWith(`${hostBootId()} `)),
      );
    } catch {
      return {};
    }
  }

  async #write(key: string, verdict: Verdict): Promise<void> {
    const { cachePath } = this.#options;
    await mkdir(dirname(cachePath), { recursive: true });
    const text = JSON.stringify({ ...(await this.#read()), [key]: verdict });
    await writeFile(`${cachePath}.new`, text);
    await rename(`${cachePath}.new`, cachePath);
  }
}

/** Why /dev/kvm cannot even be tried, or null. */
export async function kvmUnusable(): Promise<string | null> {
  try {
    await access("/dev/kvm", constants.R_OK | constants.W_OK);
    return null;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ENOENT"
      ? "This host has no /dev/kvm"
      : "The daemon may not open /dev/kvm";
  }
}

/** Groups that let a process of its own user open /dev/kvm; null where none would. */
export async function kvmGroups(): Promise<number[] | null> {
  const device = await stat("/dev/kvm").catch(() => null);
  if (device === null) return null;
  if ((device.mode & 0o006) === 0o006) return [];
  return (device.mode & 0o060) === 0o060 && device.gid !== 0 ? [device.gid] : null;
}
