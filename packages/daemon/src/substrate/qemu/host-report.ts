/** What this host gives to VMs, in words that `doctor` can print. Nothing here changes anything. */
import { readFile } from "node:fs/promises";
import type { Verdict } from "./acceleration.ts";
import type { Cgroups } from "./cgroup.ts";
import { MACHINE_TYPE } from "./command-line.ts";
import type { Isolation } from "./isolation.ts";
import type { QemuBinary } from "./qemu-binary.ts";

export interface HostReport {
  readonly qemuVersion: string;
  readonly machineType: string;
  /** Null before a kernel was asked for. */
  readonly accelerator: Verdict | null;
  /** `own`: every VM process has a uid of its own. `shared`: all are the daemon's user, one tenant only. */
  readonly users: { readonly kind: "own" | "shared"; readonly detail: string };
  readonly seccomp: boolean;
  readonly cgroups: { readonly kind: Cgroups["kind"]; readonly detail: string };
  /** May the daemon read the memory of VM processes, also of those it did not start? */
  readonly ptrace: { readonly kind: "any" | "children" | "none"; readonly detail: string };
  /** `read-only`, or `writable`: a VM process that was broken out of could change its tenant's base. */
  readonly baseAccess: "read-only" | "writable";
  readonly softDirty: boolean;
  readonly ksm: boolean;
  readonly corePattern: string;
}

export async function reportHost(
  qemu: QemuBinary,
  isolation: Isolation,
  cgroups: Cgroups,
  accelerator: Verdict | null,
): Promise<HostReport> {
  const { range } = isolation;
  return {
    qemuVersion: qemu.version,
    machineType: MACHINE_TYPE,
    accelerator,
    users:
      range === null
        ? { kind: "shared", detail: "VM processes run as the daemon's user: one tenant only" }
        : { kind: "own", detail: `uids ${range.first + 1} to ${range.first + range.count - 1}` },
    seccomp: (await text("/proc/self/status")).includes("Seccomp:"),
    cgroups: { kind: cgroups.kind, detail: cgroups.reason },
    ptrace: await ptraceRight(),
    baseAccess: qemu.needsWritableBase ? "writable" : "read-only",
    softDirty: await hasSoftDirty(),
    ksm: (await text("/sys/kernel/mm/ksm/run")).trim() === "1",
    corePattern: (await text("/proc/sys/kernel/core_pattern")).trim(),
  };
}

const CAP_SYS_PTRACE = 19;

async function ptraceRight(): Promise<HostReport["ptrace"]> {
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec(await text("/proc/self/status"))?.[1] ?? "0";
  if ((BigInt(`0x${effective}`) & (1n << BigInt(CAP_SYS_PTRACE))) !== 0n) {
    return { kind: "any", detail: "CAP_SYS_PTRACE" };
  }
  // Without the file there is no Yama, and one user's processes may always look at each other.
  const scope = (await text("/proc/sys/kernel/yama/ptrace_scope")).trim();
  if (scope === "" || scope === "0") return { kind: "any", detail: "same user" };
  if (scope === "1") {
    return {
      kind: "children",
      detail: "Yama allows only ancestors: VMs adopted after a restart are captured more slowly",
    };
  }
  return { kind: "none", detail: `Yama's ptrace_scope is ${scope}` };
}

/** Bit 55 of pagemap is set for a page just written, where the kernel tracks that. */
async function hasSoftDirty(): Promise<boolean> {
  const line = /^VmFlags:.*\bsd\b/m;
  return line.test(await text("/proc/self/smaps"));
}

async function text(path: string): Promise<string> {
  return readFile(path, "latin1").catch(() => "");
}
