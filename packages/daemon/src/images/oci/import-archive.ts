/**
 * Import: from an archive of a container image to an image of ours, with the kernel and the guest agent
 * of the default image. Everything is read and checked before anything is made; the image appears whole,
 * under the build lock, or not at all. The same archive again gives the image that is there.
 *
 * Runs in a process of its own (`work-process.ts`): the archive is hostile, and there is much to compute.
 */
import { createWriteStream } from "node:fs";
import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { digestOf } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image } from "../../core/ports/image-source.ts";
import { withFileLock } from "../../file-lock.ts";
import { baseImage } from "../base-image.ts";
import { contentOf } from "../durable-file.ts";
import type { ImageRecord } from "../image-record.ts";
import { createImageStore } from "../image-store.ts";
import { nameImage, publishImage } from "../publish-image.ts";
import { openArchive } from "./archive-index.ts";
import { limitsDefault, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import { compressionOf, layerBytes, rawBytes, showDigest } from "./blob.ts";
import { imageConfigOf } from "./container-config.ts";
import type { ContainerConfig } from "./container-config.ts";
import { planEmission } from "./emit-tree.ts";
import { fitGuest, leftOut } from "./fit-guest.ts";
import { assertRoom, makeRootfs } from "./make-rootfs.ts";
import { findImage } from "./manifest.ts";
import type { FoundImage } from "./manifest.ts";
import { readImage, rereadLayer } from "./read-image.ts";
import { runUser } from "./run-user.ts";
import type { FileNode, Tree } from "./tree.ts";

/** Raised when this code changes what an import gives. */
const importer = 2;

export interface ImportRequest {
  /** The images directory. */
  readonly directory: string;
  /** A folder in it that is this import's own, and is removed by who made it. */
  readonly workspace: string;
  /** The archive, complete. */
  readonly archive: string;
  readonly name: string;
  /** Which image is meant where the archive holds several. */
  readonly reference?: string;
  /** Whether agents start its program by themselves. */
  readonly start: boolean;
  readonly limits?: Limits;
  readonly report: (line: string) => void;
}

/** @throws PerdureError `image_archive_invalid`, `too_large`, `not_supported`, `disk_full`, `image_build_failed` */
export async function importArchive(request: ImportRequest): Promise<Image> {
  const { limits = limitsDefault, report } = request;
  await using file = await openUncompressed(request, limits);
  const { size } = await file.stat();
  const found = await findImage(await openArchive(file, size, limits), request.reference, limits);
  const base = await baseImage(request.directory);
  const recipe = digestOf({
    importer,
    config: showDigest(found.digest),
    start: request.start,
    kernel: base.kernel.sha256,
    initramfs: base.initramfs.sha256,
    commandLine: base.commandLine,
  }) as Digest;
  const known = await already(request, recipe);
  if (known !== null) return known;

  const tree = await readImage(file, found, limits, report);
  return await withFileLock(
    path.join(request.directory, ".lock"),
    async () => (await already(request, recipe)) ?? make(request, file, found, tree, base, recipe),
    () => report("waiting for another build to end"),
  );
}

/** The image that an earlier import made of the same. */
async function already(request: ImportRequest, recipe: Digest): Promise<Image | null> {
  const { directory, name, report } = request;
  const images = await createImageStore(directory).list();
  const known = images.find((image) => image.recipe === recipe);
  if (known === undefined) return null;
  report("the image is there already");
  await nameImage(directory, name, known.id);
  return known;
}

async function make(
  request: ImportRequest,
  file: FileHandle,
  found: FoundImage,
  tree: Tree,
  base: Image,
  recipe: Digest,
): Promise<Image> {
  const { directory, workspace, limits = limitsDefault, report } = request;
  // Checked before the work: only who it runs as is known after it.
  const { cwd } = imageConfigOf(found.config, "root", request.start);
  fitGuest(tree, cwd ?? "/");
  const emission = planEmission(tree.root);
  await assertRoom(workspace, emission);
  const accounts = new Accounts(tree);
  report(`making the file system: ${emission.inodes} files`);
  const rootfs = path.join(workspace, "rootfs.ext4");
  const tar = emission.tar(
    (number) => rereadLayer(file, found, number, limits),
    (node, piece) => accounts.see(node, piece),
  );
  await makeRootfs(emission, tar, rootfs, workspace, createdSeconds(found.config));
  const user = runUser(found.config.config?.User ?? "", accounts.passwd, accounts.group);
  report("publishing the image");
  const record: ImageRecord = {
    version: 1,
    name: request.name,
    kernel: { sha256: base.kernel.sha256, bytes: base.kernel.bytes },
    initramfs: { sha256: base.initramfs.sha256, bytes: base.initramfs.bytes },
    rootfs: await contentOf(rootfs),
    kernelVersion: base.kernelVersion,
    commandLine: base.commandLine,
    guestAgent: base.guestAgent,
    packages: [],
    recipe,
    config: imageConfigOf(found.config, user, request.start),
    archive: {
      digest: showDigest(found.digest),
      reference: found.reference,
      notices: leftOut(tree.root),
    },
  };
  return publishImage(directory, workspace, record, {
    kernel: base.kernel.path,
    initramfs: base.initramfs.path,
    rootfs,
  });
}

/** Longest account file that is looked at. */
const accountBytesMax = 1024 * 1024;

/** Collects the account files of the image while its files pass by. */
class Accounts {
  readonly #passwd: FileNode | null;
  readonly #group: FileNode | null;
  readonly #pieces = new Map<FileNode, Buffer[]>();

  constructor(tree: Tree) {
    this.#passwd = tree.findFile(["etc", "passwd"]);
    this.#group = tree.findFile(["etc", "group"]);
    for (const node of [this.#passwd, this.#group]) {
      if (node !== null && node.bytes <= accountBytesMax) this.#pieces.set(node, []);
    }
  }

  see(node: FileNode, piece: Buffer): void {
    // A copy: the piece is a part of a buffer that is used again.
    this.#pieces.get(node)?.push(Buffer.from(piece));
  }

  get passwd(): string | null {
    return this.#text(this.#passwd);
  }

  get group(): string | null {
    return this.#text(this.#group);
  }

  #text(node: FileNode | null): string | null {
    const pieces = node === null ? undefined : this.#pieces.get(node);
    return pieces === undefined ? null : Buffer.concat(pieces).toString("utf8");
  }
}

/** When the image was made, for what the tools make themselves. */
function createdSeconds({ created }: ContainerConfig): number {
  const seconds = Math.trunc(Date.parse(created ?? "") / 1000);
  return Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), 2 ** 31 - 1) : 0;
}

/** The archive, unpacked first where it is compressed as a whole, as in `docker save … | gzip`. */
async function openUncompressed(
  { archive, workspace, report }: ImportRequest,
  limits: Limits,
): Promise<FileHandle> {
  const file = await open(archive, "r");
  try {
    const { size } = await file.stat();
    const whole = { at: 0, bytes: size };
    if ((await compressionOf(file)) === null) return file;
    report("uncompressing the archive");
    const plain = path.join(workspace, "archive.tar");
    let bytes = 0;
    const bounded = async function* (): AsyncGenerator<Buffer> {
      for await (const piece of layerBytes(rawBytes(file, whole))) {
        bytes += piece.length;
        if (bytes > limits.archiveBytesMax) {
          throw tooLarge("the bytes of the archive", "archiveBytesMax", limits);
        }
        yield piece;
      }
    };
    await pipeline(
      Readable.from(bounded(), { objectMode: false }),
      createWriteStream(plain, { flags: "wx" }),
    );
    await file.close();
    return await open(plain, "r");
  } catch (error) {
    await file.close();
    throw error;
  }
}
