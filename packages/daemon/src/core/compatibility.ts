/**
 * Can this host honour what a checkpoint was captured on? VMMs notice little of a mismatch themselves
 * (another CPU model or a smaller disk wedges the guest, silently), so every field is compared here before
 * any byte is loaded. What cannot be honoured is refused with the reason; a cold start is offered.
 */
import { PerdureError, type SubstrateFacts } from "@perdure/protocol";

/** Reasons why `wanted` (from the manifest) cannot run as `offered` (by this host); empty: it can. */
export function incompatibilities(wanted: SubstrateFacts, offered: SubstrateFacts): string[] {
  const reasons: string[] = [];
  const same = (what: string, then: string | number, now: string | number): void => {
    if (then !== now) reasons.push(`${what} was "${then}" and is "${now}"`);
  };
  same("kind of VMM", wanted.vmm, offered.vmm);
  same("machine type", wanted.machineType, offered.machineType);
  same("CPU model", wanted.cpuModel, offered.cpuModel);
  same("accelerator", wanted.accelerator, offered.accelerator);
  same("memory in bytes", wanted.shape.memoryBytes, offered.shape.memoryBytes);
  same("number of CPUs", wanted.shape.cpus, offered.shape.cpus);
  // One that has grown since is told to the guest (grow.ts).
  if (wanted.shape.diskBytes > offered.shape.diskBytes)
    same("disk size in bytes", wanted.shape.diskBytes, offered.shape.diskBytes);
  same("kernel", wanted.kernel, offered.kernel);
  same("initramfs", wanted.initramfs, offered.initramfs);
  if (reasons.length === 0) same("device command line", wanted.deviceDigest, offered.deviceDigest);
  if (wanted.guestProtocol > offered.guestProtocol) {
    reasons.push(`the guest agent inside speaks protocol ${wanted.guestProtocol}, newer than ours`);
  }
  if (older(offered.vmmVersion, wanted.vmmVersion)) {
    reasons.push(`VMM version ${offered.vmmVersion} is older than ${wanted.vmmVersion}`);
  }
  return reasons;
}

export function assertCompatible(
  name: string,
  wanted: SubstrateFacts,
  offered: SubstrateFacts,
): void {
  const reasons = incompatibilities(wanted, offered);
  if (reasons.length > 0) {
    throw new PerdureError(
      "checkpoint_incompatible",
      `Cannot wake agent "${name}" from its checkpoint: ${reasons.join("; ")}`,
      { hint: `"perdure recover ${name} --from disk" starts it cold from its disk` },
    );
  }
}

/** Whether version `a` is older than `b`, numbers compared part by part, major and minor only. */
function older(a: string, b: string): boolean {
  const parse = (v: string): [number, number] => {
    const parts = v.split(".");
    return [Number(parts[0] ?? 0), Number(parts[1] ?? 0)];
  };
  const [aMajor, aMinor] = parse(a);
  const [bMajor, bMinor] = parse(b);
  return aMajor < bMajor || (aMajor === bMajor && aMinor < bMinor);
}
