/**
 * The first file system of a VM: the guest agent as /init, the modules it loads, and the empty
 * directories it mounts on. The kernel opens /dev/console for PID 1 before anything is mounted, so
 * that node is there from the start and early messages are seen.
 */
import { gzipSync } from "node:zlib";
import { writeCpio } from "./cpio.ts";
import type { CpioEntry } from "./cpio.ts";
import type { KernelModule } from "./kernel.ts";

/** File with the path of each module, one a line, in the order in which they must be loaded. */
const moduleList = "modules.list";

const directories = ["dev", "etc", "modules", "newroot", "proc", "root", "run", "sys", "tmp"];

/**
 * A compressed archive; equal input gives equal bytes. gzip because every kernel unpacks it and
 * nothing else is measurably faster at this size: the modules are 400 KiB.
 */
export function buildInitramfs(agent: Uint8Array, modules: readonly KernelModule[]): Buffer {
  const fileOf = (module: KernelModule): string => `modules/${module.name}.ko`;
  const list = modules.map((module) => `/${fileOf(module)}\n`).join("");
  const entries: CpioEntry[] = [
    ...directories.map((path): CpioEntry => ({ kind: "directory", path, mode: 0o755 })),
    { kind: "character-device", path: "dev/console", mode: 0o600, major: 5, minor: 1 },
    { kind: "file", path: "init", mode: 0o755, content: agent },
    { kind: "file", path: moduleList, mode: 0o644, content: Buffer.from(list) },
    ...modules.map((module): CpioEntry => {
      return { kind: "file", path: fileOf(module), mode: 0o644, content: module.content };
    }),
  ];
  const archive = gzipSync(writeCpio(entries), { level: 9 });
  archive[9] = 255; // "unknown" operating system, whatever this host's zlib writes there
  return archive;
}
