/** Makes and removes images in the images directory: implements `ImageWorkshop`. */
import { open, readdir, readFile, rename, rm, stat, statfs } from "node:fs/promises";
import path from "node:path";
import { archiveLimits, PerdureError } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image, ImageSource } from "../core/ports/image-source.ts";
import type { ImageFacts, ImageWork, ImageWorkshop } from "../core/ports/image-workshop.ts";
import type { Log } from "../core/ports/log.ts";
import { baseImageName } from "./base-image.ts";
import { recordFile } from "./image-record.ts";
import { createImageStore } from "./image-store.ts";
import { forgetUses, homesOf, withUsesLock } from "./image-use.ts";
import { tooLarge, limitsDefault } from "./oci/archive-error.ts";
import { removeUnusedParts } from "./part-store.ts";
import { assertImageName } from "./publish-image.ts";
import { runWork } from "./work/run-work.ts";
import type { Job } from "./work/work.ts";
import { openWorkspace, removeDeadWorkspaces } from "./work/workspace.ts";
import type { Workspace } from "./work/workspace.ts";

/** Imports and builds at once; each may compute for minutes. */
const worksMax = 4;
const freeBytesKeptDefault = 1024 * 1024 * 1024;
/** How often that is looked at while an archive comes in. */
const lookEveryBytes = 64 * 1024 * 1024;

export interface ImageWorkshopOptions {
  readonly directory: string;
  readonly log: Log;
  /** Room that an archive leaves to the agents of this host: they stand still on a full disk. */
  readonly freeBytesKept?: number;
}

export interface OpenImageWorkshop extends ImageWorkshop {
  /** Ends all work under way. */
  close(): Promise<void>;
}

/** Removes what dead processes left first. */
export async function openImageWorkshop(options: ImageWorkshopOptions): Promise<OpenImageWorkshop> {
  const { directory, log } = options;
  const removed = await removeDeadWorkspaces(directory);
  if (removed > 0) log("info", "Removed what was left of imports and builds", { count: removed });
  await removeHalfRemoved(directory);
  return new LocalImageWorkshop(directory, options.freeBytesKept ?? freeBytesKeptDefault);
}

const removedPrefix = ".removed-";

async function removeHalfRemoved(directory: string): Promise<void> {
  const names = await readdir(directory).catch((): string[] => []);
  for (const name of names.filter((each) => each.startsWith(removedPrefix))) {
    await rm(path.join(directory, name), { recursive: true, force: true });
  }
}

class LocalImageWorkshop implements OpenImageWorkshop {
  readonly #directory: string;
  readonly #freeBytesKept: number;
  readonly #store: ImageSource;
  readonly #closing = new AbortController();
  readonly #works = new Set<Promise<unknown>>();

  constructor(directory: string, freeBytesKept: number) {
    this.#directory = directory;
    this.#freeBytesKept = freeBytesKept;
    this.#store = createImageStore(directory);
  }

  async receive(
    wish: Parameters<ImageWorkshop["receive"]>[0],
    archive: AsyncIterable<Uint8Array>,
  ): Promise<ImageWork> {
    const { name, reference, start } = wish;
    assertMayName(name);
    const workspace = await this.#open();
    const file = path.join(workspace.path, "archive");
    try {
      await this.#spool(archive, file);
    } catch (error) {
      await workspace.close();
      throw error;
    }
    return this.#work(workspace, {
      kind: "import",
      directory: this.#directory,
      workspace: workspace.path,
      archive: file,
      ...{ name, start },
      ...(reference === undefined ? {} : { reference }),
    });
  }

  async build(name: string, recipe: Parameters<ImageWorkshop["build"]>[1]): Promise<ImageWork> {
    assertMayName(name);
    const workspace = await this.#open();
    const directory = this.#directory;
    return this.#work(workspace, {
      kind: "build",
      directory,
      workspace: workspace.path,
      name,
      recipe,
    });
  }

  async facts(image: Image): Promise<ImageFacts> {
    const files = [image.kernel, image.initramfs, ...(image.rootfs === null ? [] : [image.rootfs])];
    const found = await Promise.all(files.map(({ path: at }) => stat(at)));
    const record = await stat(path.join(this.#directory, image.id, recordFile));
    const names = await this.#namesOf(image.id);
    return {
      names,
      storedBytes: found.reduce((sum, { blocks }) => sum + blocks * 512, 0),
      createdAtMs: Math.trunc(record.mtimeMs),
      isBase: names.includes(baseImageName),
    };
  }

  async unname(name: string): Promise<void> {
    await rm(path.join(this.#directory, "names", name), { force: true });
  }

  async remove(image: Digest): Promise<void> {
    const directory = this.#directory;
    const gone = path.join(directory, `${removedPrefix}${image}`);
    await withUsesLock(directory, async () => {
      const homes = await homesOf(directory, image);
      if (homes.length > 0) {
        throw new PerdureError(
          "image_in_use",
          `Cannot remove image ${image}: agents of ${homes.map((home) => `"${home}"`).join(", ")} stand on it`,
          { hint: "Remove those agents first." },
        );
      }
      for (const name of await this.#namesOf(image)) await this.unname(name);
      await rm(gone, { recursive: true, force: true });
      await rename(path.join(directory, image), gone).catch(ignoreMissing);
      await forgetUses(directory, image);
    });
    await rm(gone, { recursive: true, force: true });
    await removeUnusedParts(directory);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#works);
  }

  async #namesOf(image: string): Promise<string[]> {
    const folder = path.join(this.#directory, "names");
    const names = (await readdir(folder).catch((): string[] => [])).sort();
    const ids = await Promise.all(
      names.map((name) => readFile(path.join(folder, name), "utf8").catch(() => "")),
    );
    return names.filter((_, index) => ids[index]?.trim() === image);
  }

  async #open(): Promise<Workspace> {
    if (this.#works.size >= worksMax) {
      throw new PerdureError(
        "too_many",
        `Cannot make an image: ${worksMax} imports and builds are under way`,
        { hint: "Try again when one has ended.", details: { max: worksMax } },
      );
    }
    const workspace = await openWorkspace(this.#directory);
    const { promise, resolve } = Promise.withResolvers<undefined>();
    this.#works.add(promise);
    return {
      path: workspace.path,
      close: async () => {
        try {
          await workspace.close();
        } finally {
          this.#works.delete(promise);
          resolve(undefined);
        }
      },
    };
  }

  #work(workspace: Workspace, job: Job): ImageWork {
    return {
      finish: async (signal, report) => {
        try {
          const until = AbortSignal.any([signal, this.#closing.signal]);
          return await this.#store.resolve(await runWork(job, until, report));
        } finally {
          await workspace.close();
        }
      },
      drop: () => workspace.close(),
    };
  }

  #diskFull(cause?: unknown): PerdureError {
    return new PerdureError(
      "disk_full",
      `Cannot take the archive in: "${this.#directory}" must keep ${this.#freeBytesKept} bytes free`,
      cause === undefined ? {} : { cause },
    );
  }

  async #spool(archive: AsyncIterable<Uint8Array>, at: string): Promise<void> {
    await using file = await open(at, "wx", 0o600);
    const { archiveBytesMax } = archiveLimits;
    let bytes = 0;
    let lookAt = 0;
    try {
      for await (const piece of archive) {
        if (this.#closing.signal.aborted) {
          throw new PerdureError("daemon_unreachable", "The daemon is stopping");
        }
        if (bytes >= lookAt) {
          const { bavail, bsize } = await statfs(this.#directory);
          if (bavail * bsize < this.#freeBytesKept) throw this.#diskFull();
          lookAt = bytes + lookEveryBytes;
        }
        bytes += piece.length;
        if (bytes > archiveBytesMax) {
          throw tooLarge("the bytes of the archive", "archiveBytesMax", limitsDefault);
        }
        await file.writeFile(piece);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      throw this.#diskFull(error);
    }
  }
}

function assertMayName(name: string): void {
  assertImageName(name);
  if (name !== baseImageName) return;
  throw new PerdureError(
    "bad_request",
    `Cannot name an image "${name}": that is the built-in one`,
    {
      hint: "Choose another name.",
    },
  );
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== "ENOENT") throw error;
}
