/** What the figures were taken on. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import os from "node:os";
import { promisify } from "node:util";

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly kernel: string;
  readonly memoryBytes: number;
  /** `tcg` (software emulation) or `kvm`: what the VMs of this run used. */
  readonly accelerator: string;
  readonly qemu: string;
  readonly node: string;
  /** Runnable threads over the minute before the run: a busy machine blurs every figure. */
  readonly loadBefore: number;
}

export const QEMU = "qemu-system-x86_64";

export async function describeMachine(accelerator: string): Promise<Machine> {
  const [cpuInfo, version] = await Promise.all([
    readFile("/proc/cpuinfo", "utf8"),
    promisify(execFile)(QEMU, ["--version"]),
  ]);
  return {
    cpu: /^model name\s*:\s*(.+)$/m.exec(cpuInfo)?.[1] ?? "unknown",
    cores: os.availableParallelism(),
    kernel: os.release(),
    memoryBytes: os.totalmem(),
    accelerator,
    qemu: /version ([0-9.]+)/.exec(version.stdout)?.[1] ?? "unknown",
    node: process.versions.node,
    loadBefore: os.loadavg()[0] ?? Number.NaN,
  };
}
