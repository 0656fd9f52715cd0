/** What `perdure doctor` says about this host: each finding with what to do about it. */
import { access, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { DoctorReport } from "@perdure/protocol";
import type { Image } from "./core/ports/image-source.ts";

type Finding = DoctorReport["findings"][number];

/** Facts about the host, as the composition root collected them. */
export interface HostFacts {
  readonly home: string;
  readonly nodeVersion: string;
  readonly images: readonly Image[];
  readonly qemuVersion: string;
  readonly machineType: string;
  readonly accelerator: { readonly accelerator: string; readonly reason: string } | null;
  readonly users: { readonly kind: "own" | "shared"; readonly detail: string };
  readonly seccomp: boolean;
  readonly cgroups: { readonly kind: string; readonly detail: string };
  readonly ptrace: { readonly kind: "any" | "children" | "none"; readonly detail: string };
  readonly baseAccess: "read-only" | "writable";
  readonly softDirty: boolean;
  readonly ksm: boolean;
  readonly corePattern: string;
}

/** Below this it is said that room gets short. */
const FREE_BYTES_WANTED = 4 * 1024 ** 3;
/** Below this not even an agent that wrote nothing could be put to sleep: what the stores keep free, and slack. */
const FREE_BYTES_NEEDED = 80 * 1024 ** 2;
/** The file that the state store holds room with, and lets go of on a full disk. */
const BALLAST_FILE = "perdure.db.ballast";

export async function diagnose(host: HostFacts): Promise<DoctorReport> {
  const { bavail, bsize } = await statfs(host.home);
  const hasBallast = await access(join(host.home, BALLAST_FILE)).then(
    () => true,
    () => false,
  );
  const findings: Finding[] = [
    good("Node", host.nodeVersion),
    good("QEMU", `${host.qemuVersion}, machine type ${host.machineType}`),
    acceleration(host),
    host.images.length > 0
      ? good("images", [...new Set(host.images.map((image) => image.name))].join(", "))
      : missing("images", "There is none", 'Run "npm run setup", which builds the default image'),
    host.users.kind === "own"
      ? good("isolation of users", host.users.detail)
      : limited(
          "isolation of users",
          host.users.detail,
          "Run the daemon as root for one uid per VM",
        ),
    host.seccomp
      ? good("seccomp", "QEMU's filter is on for every VM")
      : limited("seccomp", "This kernel has no seccomp", "Use a kernel with CONFIG_SECCOMP"),
    host.cgroups.kind === "none"
      ? limited("control groups", host.cgroups.detail, "Run as root, or delegate a cgroup")
      : good("control groups", `${host.cgroups.kind} ${host.cgroups.detail}`.trim()),
    host.ptrace.kind === "any"
      ? good("reading VM memory", host.ptrace.detail)
      : limited(
          "reading VM memory",
          host.ptrace.detail,
          "Give the daemon CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0",
        ),
    host.baseAccess === "read-only"
      ? good("memory bases", "VMs open them read-only")
      : limited(
          "memory bases",
          "This QEMU needs a writable descriptor, so each tenant has a copy of its own: a VM process that was broken out of could change its tenant's base, which the digest check finds at the next host boot",
          "QEMU 8.2 or newer opens bases read-only",
        ),
    host.ksm
      ? limited(
          "KSM",
          "The kernel merges equal pages",
          "VMs opt out; set /sys/kernel/mm/ksm/run to 0 to be sure",
        )
      : good("KSM", "off"),
    limited(
      "encryption at rest",
      "Packs, page maps and device state are encrypted per agent. Memory bases and disk layers are not",
      `Keep "${host.home}" on an encrypted file system`,
    ),
    freeSpace(bavail * bsize, hasBallast, host.home),
  ];
  return { ready: findings.every((finding) => finding.verdict !== "missing"), findings };
}

function acceleration({ accelerator }: HostFacts): Finding {
  if (accelerator === null) {
    return limited("acceleration", "Not tried yet: the first create boots a probe", null);
  }
  return accelerator.accelerator === "kvm"
    ? good("acceleration", `kvm: ${accelerator.reason}`)
    : limited(
        "acceleration",
        `Software emulation: ${accelerator.reason}`,
        "Programs run several times slower; sleep and wake do not",
      );
}

/** `hasBallast`: the state store still has the room that it keeps for changes of state. */
export function freeSpace(bytes: number, hasBallast: boolean, home: string): Finding {
  const subject = "free space";
  const advice = `Remove agents that are no longer needed, or free some space on the file system of "${home}"`;
  if (!hasBallast) {
    return missing(
      subject,
      `${size(bytes)}: the state store lives on its reserve; no agent can be created`,
      `${advice}; the rest follows by itself`,
    );
  }
  if (bytes < FREE_BYTES_NEEDED) {
    return missing(
      subject,
      `${size(bytes)}, less than ${size(FREE_BYTES_NEEDED)}: a new agent could not be put to sleep`,
      advice,
    );
  }
  return bytes < FREE_BYTES_WANTED
    ? limited(
        subject,
        `${size(bytes)}, less than ${size(FREE_BYTES_WANTED)}`,
        `A sleep is refused where its pages do not fit. ${advice}`,
      )
    : good(subject, size(bytes));
}

function good(subject: string, detail: string): Finding {
  return { subject, verdict: "good", detail, advice: null };
}

function limited(subject: string, detail: string, advice: string | null): Finding {
  return { subject, verdict: "limited", detail, advice };
}

function missing(subject: string, detail: string, advice: string): Finding {
  return { subject, verdict: "missing", detail, advice };
}

function size(bytes: number): string {
  return bytes < 1024 ** 3
    ? `${Math.floor(bytes / 1024 ** 2)} MiB`
    : `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}
