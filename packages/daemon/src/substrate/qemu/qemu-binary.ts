/** The QEMU of this host: where it is, its version, and whether it can be the VMM. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { PerdureError } from "@perdure/protocol";
import { MACHINE_TYPE } from "./command-line.ts";

const run = promisify(execFile);

export interface QemuBinary {
  readonly path: string;
  /** `7.2.22` */
  readonly version: string;
  /** Below 8.2 a private mapping of the base needs a descriptor that may write. */
  readonly needsWritableBase: boolean;
}

/** @throws `host_not_ready` */
export async function findQemu(name = "qemu-system-x86_64"): Promise<QemuBinary> {
  const path = await locate(name);
  const { stdout: about } = await run(path, ["--version"]);
  const version = /version (\d+\.\d+(\.\d+)?)/.exec(about)?.[1];
  if (version === undefined) throw notReady(`"${path}" does not tell its version`);
  const { stdout: machines } = await run(path, ["-machine", "help"]);
  if (!machines.split("\n").some((line) => line.startsWith(`${MACHINE_TYPE} `))) {
    throw notReady(`QEMU ${version} does not have the machine type "${MACHINE_TYPE}"`);
  }
  return { path, version, needsWritableBase: isBefore(version, 8, 2) };
}

async function locate(name: string): Promise<string> {
  try {
    const { stdout } = await run("/bin/sh", ["-c", 'command -v -- "$1"', "sh", name]);
    return stdout.trim();
  } catch {
    throw notReady(`"${name}" is not installed`);
  }
}

export function isBefore(version: string, major: number, minor: number): boolean {
  const [a = 0, b = 0] = version.split(".").map(Number);
  return a < major || (a === major && b < minor);
}

function notReady(reason: string): PerdureError {
  return new PerdureError("host_not_ready", reason, {
    hint: "Install QEMU 7.2 or newer: apt-get install qemu-system-x86",
  });
}
