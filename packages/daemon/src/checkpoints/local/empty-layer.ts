/**
 * Empty disk layers. `qemu-img` makes one per size (it costs a process); every other is a copy.
 *
 * Clusters of 16 KiB, so that a guest's small scattered writes take little more than what they write: a
 * short idle sleep allocates 0.2 to 0.4 MiB. Extended L2 entries would save another fifth, but with them
 * QEMU before 8.2 aborts where it merges into a layer that has a part of a cluster ("bdrv_co_do_copy_on_readv:
 * Assertion `skip_bytes < pnum' failed").
 */
import { execFile } from "node:child_process";
import { mkdir, open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { PerdureError } from "@perdure/protocol";
import { isZero } from "../content-digest.ts";
import { FILE_MODE, FOLDER_MODE, publishOnce, syncFile, temporaryPath } from "../durable.ts";

/** Names the format: what an earlier one left in the cache is not used. */
const formatName = "16k";
const layerOptions = "cluster_size=16384,lazy_refcounts=off,preallocation=off,compat=1.1";
const blockBytes = 4096;

interface Pattern {
  readonly bytes: number;
  readonly runs: readonly { readonly offset: number; readonly bytes: Uint8Array }[];
}

export class EmptyLayers {
  readonly #cache: string;
  readonly #qemuImg: string;
  readonly #patterns = new Map<number, Promise<Pattern>>();

  constructor(home: string, qemuImg = "qemu-img") {
    this.#cache = join(home, "cache", "empty-layers");
    this.#qemuImg = qemuImg;
  }

  /** Makes a new file; durable after a sync of it and of its folder. */
  async create(path: string, diskBytes: number): Promise<void> {
    let pattern = this.#patterns.get(diskBytes);
    if (pattern === undefined) {
      pattern = this.#make(diskBytes);
      this.#patterns.set(diskBytes, pattern);
      pattern.catch(() => this.#patterns.delete(diskBytes));
    }
    const { bytes, runs } = await pattern;
    const file = await open(path, "wx", FILE_MODE);
    try {
      for (const run of runs) await file.write(run.bytes, 0, run.bytes.length, run.offset);
      await file.truncate(bytes);
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    } finally {
      await file.close();
    }
  }

  async #make(diskBytes: number): Promise<Pattern> {
    const path = join(this.#cache, `${diskBytes}-${formatName}.qcow2`);
    const cached = await readFile(path).catch(() => null);
    if (cached !== null) return pattern(cached);
    await mkdir(this.#cache, { recursive: true, mode: FOLDER_MODE });
    const temporary = temporaryPath(path);
    try {
      await promisify(execFile)(
        this.#qemuImg,
        ["create", "-q", "-f", "qcow2", "-o", layerOptions, temporary, String(diskBytes)],
        { env: { PATH: process.env["PATH"] ?? "/usr/bin:/bin", LC_ALL: "C" } },
      );
      await syncFile(temporary);
    } catch (error) {
      await rm(temporary, { force: true });
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new PerdureError("host_not_ready", 'Cannot make a disk layer: there is no "qemu-img"', {
        hint: "Install the package that has it (Debian: qemu-utils).",
      });
    }
    await publishOnce(temporary, path);
    return pattern(await readFile(path));
  }
}

function pattern(file: Buffer): Pattern {
  const runs: { offset: number; bytes: Uint8Array }[] = [];
  for (let offset = 0; offset < file.length; offset += blockBytes) {
    const block = file.subarray(offset, offset + blockBytes);
    if (!isZero(block)) runs.push({ offset, bytes: block });
  }
  return { bytes: file.length, runs };
}
