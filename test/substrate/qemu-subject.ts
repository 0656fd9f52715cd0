/** The real QEMU as a subject of the substrate's contract. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { SubstrateSubject } from "../contract/substrate/subject.ts";
import { TestHome, type OpenOptions } from "./home.ts";
import { ProbeGuest } from "./probe-guest.ts";
import { makeProbeImage } from "./probe-image.ts";

export const testShape = {
  memoryBytes: 128 * 1024 * 1024,
  cpus: 1,
  diskBytes: 2 * 1024 ** 3,
} as const;

export async function qemuSubject(
  options: OpenOptions,
): Promise<SubstrateSubject & { readonly home: TestHome }> {
  const home = await TestHome.make();
  const boot = await makeProbeImage(home.path);
  return {
    home,
    spec: { tenant: "default", shape: testShape, boot },
    open: () => home.open(options),
    guest: (machine) => new ProbeGuest(machine.linkPath),
    newBasePath: () => home.newPath("base"),
    async newLayer() {
      const path = await home.newPath("layer.qcow2");
      await makeLayer(path);
      return path;
    },
    crash: ({ pid }) => process.kill(pid, "SIGKILL"),
    missing: {},
    close: () => home.close(),
  };
}

export async function makeLayer(path: string): Promise<void> {
  const bytes = String(testShape.diskBytes);
  await promisify(execFile)("qemu-img", ["create", "-q", "-f", "qcow2", path, bytes]);
}
