/**
 * Gives a VM process the files it needs and no others. Only where processes have users of their own.
 *
 * - I1 A layer that is shared with other chains is never writable by any VM process.
 * - I2 The folder of a chain's top can be passed through by the one process that writes it, while it lives.
 * - I3 Folders inside of the daemon's own directories may be traversed, not listed, by others; folders
 *   outside of them are left as they are.
 */
import { chmod, chown, lstat, stat } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { PerdureError } from "@perdure/protocol";
import type { DiskChain } from "../../core/ports/substrate.ts";
import type { Credentials } from "./isolation.ts";

export class Grants {
  readonly #folders: readonly string[];
  readonly #enabled: boolean;

  /** @param folders the daemon's own, in which folders may be opened for passing through */
  constructor(folders: readonly string[], enabled: boolean) {
    this.#folders = folders;
    this.#enabled = enabled;
  }

  /** One of the daemon's own directories is opened for passing through, not for listing. */
  async passable(folder: string): Promise<void> {
    if (!this.#enabled) return;
    await this.#reachable(join(folder, "any"));
  }

  /** The base: readable by the tenant, writable where this QEMU cannot map it otherwise. */
  async base(path: string, to: Credentials, writable: boolean): Promise<void> {
    if (!this.#enabled) return;
    // Readable by all already: a template's base that several data directories share.
    const shared = !writable && ((await stat(path)).mode & 0o004) !== 0;
    if (!shared) await own(path, to.tenantGid, writable ? 0o660 : 0o640);
    await this.#reachable(path);
  }

  /** A file of this process alone. */
  async ownFile(path: string, to: Credentials): Promise<void> {
    if (!this.#enabled) return;
    await chown(path, to.uid, to.gid);
    await chmod(path, 0o600);
    await this.#reachable(path);
  }

  /** A template's base while the process makes it, and the folder that it lies in. */
  async draft(path: string, to: Credentials): Promise<void> {
    if (!this.#enabled) return;
    await chown(path, to.uid, to.gid);
    await this.#folder(dirname(path), to);
  }

  /** The process is gone; its uid will be another's. */
  async takeBack(path: string): Promise<void> {
    if (this.#enabled) await chown(path, 0, 0).catch(() => undefined);
  }

  /** What lies below the top of a chain, and the way to it. */
  async below(chain: DiskChain, to: Credentials): Promise<void> {
    if (!this.#enabled) return;
    const top = chain.layerPaths.at(-1);
    for (const lower of chain.layerPaths.slice(0, -1)) {
      await this.#lower(lower, to);
      if (top === undefined || dirname(lower) !== dirname(top)) await this.#reachable(lower);
    }
    if (chain.imagePath !== null) await this.readable(chain.imagePath);
    if (top !== undefined) await this.#folder(dirname(top), to);
  }

  /** The layer that this process writes, and the folder that it lies in. */
  async top(path: string, to: Credentials): Promise<void> {
    if (!this.#enabled) return;
    await own(path, to.gid, 0o660);
    await this.#folder(dirname(path), to);
  }

  /** What was the top has become immutable. */
  async sealed(path: string, to: Credentials): Promise<void> {
    if (this.#enabled) await this.#lower(path, to);
  }

  /** The process is gone and its uid will be another's: nobody passes to its layers any more. */
  async closed(layers: readonly string[]): Promise<void> {
    const top = layers.at(-1);
    if (top !== undefined && this.#isOurs(dirname(top))) await this.takeBack(dirname(top));
  }

  /** A file that every process may read (kernel, initramfs, image). @throws `host_not_ready` */
  async readable(path: string): Promise<void> {
    if (!this.#enabled) return;
    const { mode } = await stat(path);
    if ((mode & 0o004) === 0) {
      throw new PerdureError("host_not_ready", `"${path}" is not readable by VM processes`, {
        hint: `chmod o+r ${path}`,
      });
    }
    await this.#reachable(path);
  }

  async #lower(path: string, to: Credentials): Promise<void> {
    // A second name means another agent's chain, perhaps another tenant's: then the folder guards it.
    const { nlink } = await lstat(path).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      throw new PerdureError("machine_failed", `disk layer "${path}" is missing`, { cause: error });
    });
    if (nlink > 1) await own(path, 0, 0o444);
    else await own(path, to.tenantGid, 0o640);
  }

  /** One of the daemon's folders becomes this process's to pass through; any other is left alone. */
  async #folder(path: string, to: Credentials): Promise<void> {
    const ours = this.#isOurs(path);
    if (ours) await own(path, to.gid, 0o710);
    await this.#reachable(ours ? path : join(path, "any"));
  }

  #isOurs(path: string): boolean {
    return this.#folders.some((own) => own !== path && isInside(own, path));
  }

  async #reachable(path: string): Promise<void> {
    for (let folder = dirname(path); folder !== "/"; folder = dirname(folder)) {
      const { mode } = await stat(folder);
      if ((mode & 0o001) !== 0) continue;
      if (this.#folders.some((own) => isInside(own, folder))) {
        await chmod(folder, (mode & 0o777) | 0o011);
        continue;
      }
      throw new PerdureError("host_not_ready", `VM processes cannot pass through "${folder}"`, {
        hint: `They run as users of their own: chmod o+x ${folder}, or use another place.`,
      });
    }
  }
}

/** Root's, with a group, without following a link. */
async function own(path: string, gid: number, mode: number): Promise<void> {
  const now = await lstat(path);
  if (now.isSymbolicLink()) {
    throw new PerdureError("machine_failed", `"${path}" is a symbolic link`);
  }
  // Where it is so already nothing is written: a change would wait for the file system's journal.
  if (now.uid !== 0 || now.gid !== gid) await chown(path, 0, gid);
  if ((now.mode & 0o7777) !== mode) await chmod(path, mode);
}

function isInside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way === "" || (!way.startsWith("..") && !way.startsWith("/"));
}
