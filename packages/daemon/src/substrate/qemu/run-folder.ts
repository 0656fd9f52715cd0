/**
 * The folder of one machine: `RUN/ID/` is root's; inside it `io/` belongs to the VM process.
 *
 * - I1 Sockets are moved out of `io/` as soon as they exist, before any state of a guest is loaded: a
 *   VM process that was taken over later cannot put a link to another socket in their place.
 * - I2 What is read from `io/` is opened without following links and must be a regular file.
 */
import { constants } from "node:fs";
import {
  chmod,
  chown,
  lstat,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { PerdureError, type MachineId, type SubstrateFacts } from "@perdure/protocol";
import type { MachineEvent } from "../../core/ports/substrate.ts";
import type { Credentials } from "./isolation.ts";
import { qemuLimits } from "./limit.ts";
import { noSpace } from "./no-space.ts";

/** What a later daemon must know of a machine beyond its record; written by the daemon alone. */
export interface MachineNote {
  readonly facts: SubstrateFacts;
  /** As in /proc/PID/maps. */
  readonly basePath: string;
  readonly sharing: "private" | "shared";
  readonly credentials: Credentials;
}

export class RunFolder {
  readonly path: string;
  readonly io: string;
  readonly monitorPath: string;
  readonly linkPath: string;

  constructor(runDir: string, id: MachineId) {
    this.path = join(runDir, id);
    this.io = join(this.path, "io");
    this.monitorPath = join(this.path, "qmp");
    this.linkPath = join(this.path, "link");
  }

  /** Where the VM process makes its sockets. */
  get monitorBirthPath(): string {
    return join(this.io, "qmp");
  }

  get linkBirthPath(): string {
    return join(this.io, "link");
  }

  get incomingPath(): string {
    return join(this.io, "in");
  }

  get devicesPath(): string {
    return join(this.io, "devices");
  }

  get memoryPath(): string {
    return join(this.io, "memory");
  }

  async make(to: Credentials, own: boolean): Promise<void> {
    // Run directories are cleared by hosts and people, also under a daemon that runs.
    await mkdir(dirname(this.path), { recursive: true, mode: 0o711 });
    await mkdir(this.path, { mode: 0o700 });
    await mkdir(this.io, { mode: 0o700 });
    if (!own) return;
    await chown(this.io, to.uid, to.gid);
    await chown(this.path, 0, to.gid);
    await chmod(this.path, 0o710);
  }

  /** Takes the sockets away from the VM process. */
  async keepSockets(): Promise<void> {
    for (const [from, to] of [
      [this.monitorBirthPath, this.monitorPath],
      [this.linkBirthPath, this.linkPath],
    ] as const) {
      await rename(from, to);
      if (!(await lstat(to)).isSocket()) {
        throw new PerdureError("machine_start_failed", `"${from}" is not a socket`);
      }
    }
  }

  async writeNote(note: MachineNote): Promise<void> {
    await this.#write("machine.json", note);
  }

  /** Null where there is none: the machine was still starting. */
  async readNote(): Promise<MachineNote | null> {
    return (await this.#read("machine.json")) as MachineNote | null;
  }

  /** How the machine ended. Its folder may be gone already. */
  async writeEnd(event: MachineEvent): Promise<void> {
    await this.#write("end.json", event).catch(() => undefined);
  }

  async readEnd(): Promise<MachineEvent | null> {
    return (await this.#read("end.json")) as MachineEvent | null;
  }

  async writeLayers(paths: readonly string[]): Promise<void> {
    await this.#write("layers.json", paths);
  }

  async readLayers(): Promise<string[]> {
    return ((await this.#read("layers.json")) as string[] | null) ?? [];
  }

  /** The folder is root's, or the daemon's: what is read here was written here. @throws `disk_full` */
  async #write(name: string, value: unknown): Promise<void> {
    const path = join(this.path, name);
    try {
      await writeFile(`${path}.new`, JSON.stringify(value), { mode: 0o600 });
      await rename(`${path}.new`, path);
    } catch (error) {
      throw noSpace(error, "note what a VM has") ?? error;
    }
  }

  async #read(name: string): Promise<unknown> {
    try {
      return JSON.parse(await readFile(join(this.path, name), "utf8"));
    } catch {
      return null;
    }
  }

  /** Reads a file that the VM process wrote, then removes it. @throws `machine_failed` */
  async takeFile(path: string, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
    const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    const file = await open(path, flags).catch((cause: unknown) => {
      const message = "Cannot read what the VM process was to write: there is no such plain file";
      throw new PerdureError("machine_failed", message, { cause });
    });
    try {
      const { size } = await checkedSize(file, path, bytesMax);
      const bytes = new Uint8Array(size);
      for (let done = 0; done < size;) {
        const { bytesRead } = await file.read(bytes, done, size - done, done);
        if (bytesRead === 0) throw new PerdureError("machine_failed", `"${path}" became shorter`);
        done += bytesRead;
      }
      return bytes;
    } finally {
      await file.close();
      await rm(path, { force: true });
    }
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

async function checkedSize(
  file: Awaited<ReturnType<typeof open>>,
  path: string,
  bytesMax: number,
): Promise<{ size: number }> {
  const stat = await file.stat();
  if (!stat.isFile()) throw new PerdureError("machine_failed", `"${path}" is not a regular file`);
  if (stat.size > bytesMax) {
    throw new PerdureError(
      "machine_failed",
      `"${path}" has ${stat.size} bytes, more than ${bytesMax}`,
    );
  }
  return { size: stat.size };
}

/** Refuses a run directory in which sockets would have names too long for the kernel. */
export function checkRunDir(runDir: string): void {
  const longest = join(runDir, `vm_${"0".repeat(26)}`, "io", "link");
  if (Buffer.byteLength(longest) + 1 > qemuLimits.socketPathBytes) {
    throw new PerdureError("host_not_ready", `The run directory "${runDir}" has too long a path`, {
      hint: `Socket paths have at most ${qemuLimits.socketPathBytes - 1} bytes; choose a shorter one.`,
    });
  }
}
