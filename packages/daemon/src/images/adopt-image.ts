/** An image that came from another host, with an agent: its files are there, whole; they get their place. */
import { constants } from "node:fs";
import { copyFile, link, mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image, ImageFile } from "../core/ports/image-source.ts";
import { tryWithFileLock, withFileLock } from "../file-lock.ts";
import { makeBuildDirectory, publishDirectory, removeLeftovers } from "./durable-file.ts";
import {
  fileNames,
  imageId,
  readRecord,
  recordFile,
  toImage,
  writeRecord,
} from "./image-record.ts";
import type { Content, ImageRecord } from "./image-record.ts";

export interface AdoptedFiles {
  readonly kernel: ImageFile;
  readonly initramfs: ImageFile;
  readonly rootfs: ImageFile | null;
}

const namePattern = /^[a-z0-9][a-z0-9._-]{0,62}$/;
/** What the kernel takes, and no more than a line: printable ASCII. */
const commandLinePattern = /^[ -~]{0,2047}$/;
const textPattern = /^[ -~]{1,256}$/;

/** @throws `export_invalid`, `disk_full` */
export async function adoptImage(
  directory: string,
  description: string,
  files: AdoptedFiles,
  isWhole: (id: Digest) => Promise<boolean>,
): Promise<Image> {
  const record = checked(description, files);
  const id = imageId(record);
  const target = path.join(directory, id);
  await mkdir(directory, { recursive: true });
  await withFileLock(path.join(directory, ".lock"), async () => {
    await removeLeftovers(directory);
    // Another one may have brought it while this waited.
    if (await isWhole(id)) return;
    const draft = await makeBuildDirectory(directory);
    try {
      for (const role of ["kernel", "initramfs", "rootfs"] as const) {
        const file = files[role];
        if (file !== null) await take(file.path, path.join(draft, fileNames[role]));
      }
      await writeFile(path.join(draft, recordFile), writeRecord(record));
      await publishDirectory(draft, target);
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
  });
  return toImage(record, target);
}

/** Removes what an adoption or a build that died left, unless one is under way. */
export async function tidyImages(directory: string): Promise<void> {
  await tryWithFileLock(path.join(directory, ".lock"), () => removeLeftovers(directory));
}

/** A second name where the file system can, else a copy. */
async function take(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "EXDEV" && code !== "EMLINK" && code !== "EPERM") throw error;
    await copyFile(from, to, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
  }
}

function checked(description: string, files: AdoptedFiles): ImageRecord {
  const record = readRecord(description);
  const isRight =
    record !== null &&
    namePattern.test(record.name) &&
    commandLinePattern.test(record.commandLine) &&
    textPattern.test(record.kernelVersion) &&
    textPattern.test(record.guestAgent.version) &&
    isSame(record.kernel, files.kernel) &&
    isSame(record.initramfs, files.initramfs) &&
    (record.rootfs === null
      ? files.rootfs === null
      : files.rootfs !== null && isSame(record.rootfs, files.rootfs));
  if (isRight) return record;
  throw new PerdureError("export_invalid", "The image that comes with the agent is malformed", {
    hint: "Export the agent again, or take another copy of the file.",
  });
}

function isSame(one: Content, other: Content): boolean {
  return one.sha256 === other.sha256 && one.bytes === other.bytes;
}
