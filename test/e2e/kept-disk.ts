/**
 * Reads a file out of an agent's disk layers with qemu-img and e2fsprogs alone: for branches that
 * were kept and that nothing runs on.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DaemonUnderTest } from "./daemon-under-test.ts";

/** The lowest image of a running VM's disk, as it has it open. */
export function imageBelow(openFiles: readonly string[]): string {
  const image = openFiles.find((path) => path.endsWith(".ext4"));
  if (image === undefined) throw new Error(`No image among ${openFiles.join(", ")}`);
  return image;
}

/** The content of `path` in the disk made of `image` and `layers`, lowest first; null where it is not there. */
export function readKeptFile(
  under: DaemonUnderTest,
  agentId: string,
  image: string,
  layers: readonly string[],
  path: string,
): string | null {
  const folder = mkdtempSync(join(tmpdir(), "perdure-disk-"));
  try {
    const raw = join(folder, "disk.raw");
    const chain = layers.reduce<object>(
      (backing, layer) => ({
        driver: "qcow2",
        file: {
          driver: "file",
          filename: join(under.home, "agents", agentId, "layers", `${layer}.qcow2`),
        },
        backing,
      }),
      { driver: "raw", file: { driver: "file", filename: image } },
    );
    const shared = ["convert", "-U", "-O", "raw", `json:${JSON.stringify(chain)}`, raw];
    execFileSync("qemu-img", shared, { stdio: "pipe" });
    // The journal of a disk that was cut off has to be played back; exit 1 says that it was.
    try {
      execFileSync("/usr/sbin/e2fsck", ["-fy", raw], { stdio: "pipe" });
    } catch (error) {
      if ((error as { status?: number }).status !== 1) throw error;
    }
    const out = join(folder, "file");
    execFileSync("/usr/sbin/debugfs", ["-R", `dump ${path} ${out}`, raw], { stdio: "pipe" });
    if (!readdirSync(folder).includes("file")) return null;
    return execFileSync("cat", [out], { encoding: "utf8" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
