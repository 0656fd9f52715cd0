/** `image.json`: what an image's directory says about itself. Canonical JSON, version 1. */
import path from "node:path";
import { canonicalJson, digestOf, digestSchema, imageConfigSchema } from "@perdure/protocol";
import type { CanonicalValue, Digest, ImageConfig } from "@perdure/protocol";
import type {
  Image,
  ImageArchive,
  ImageFile,
  ImageGuestAgent,
  ImagePackage,
} from "../core/ports/image-source.ts";

/** Name of the record in an image's directory. */
export const recordFile = "image.json";

/** Names of the other files in it. */
export const fileNames = {
  kernel: "vmlinuz",
  initramfs: "initramfs.gz",
  rootfs: "rootfs.ext4",
} as const;

/** A file of an image by what it holds; its name is fixed by its role. */
export interface Content {
  readonly sha256: Digest;
  readonly bytes: number;
}

export interface ImageRecord {
  readonly version: 1;
  readonly name: string;
  readonly kernel: Content;
  readonly initramfs: Content;
  readonly rootfs: Content | null;
  readonly kernelVersion: string;
  readonly commandLine: string;
  readonly guestAgent: ImageGuestAgent;
  readonly packages: readonly ImagePackage[];
  readonly recipe: Digest;
  /** Absent where the image is none of a container. */
  readonly config?: ImageConfig;
  readonly archive?: ImageArchive;
}

/** The id of an image: what its VMs run, and nothing about when or where it was built. */
export function imageId(record: ImageRecord): Digest {
  return digestOf({
    commandLine: record.commandLine,
    initramfs: record.initramfs.sha256,
    kernel: record.kernel.sha256,
    rootfs: record.rootfs?.sha256 ?? null,
    ...(record.config === undefined ? {} : { config: digestOf(record.config) }),
  }) as Digest;
}

export function writeRecord(record: ImageRecord): string {
  return canonicalJson(record as unknown as CanonicalValue) + "\n";
}

/** The record in `text`, or `null` where it is not one of version 1. */
export function readRecord(text: string): ImageRecord | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  const whole =
    isObject(value) &&
    value.version === 1 &&
    isContent(value.kernel) &&
    isContent(value.initramfs) &&
    (value.rootfs === null || isContent(value.rootfs)) &&
    [value.name, value.kernelVersion, value.commandLine].every(
      (text) => typeof text === "string",
    ) &&
    isDigest(value.recipe) &&
    isObject(value.guestAgent) &&
    isDigest(value.guestAgent.sha256) &&
    typeof value.guestAgent.version === "string" &&
    Number.isSafeInteger(value.guestAgent.protocol) &&
    Array.isArray(value.packages) &&
    value.packages.every(
      (entry) =>
        isObject(entry) && typeof entry.name === "string" && typeof entry.version === "string",
    ) &&
    (value.config === undefined || imageConfigSchema.safeParse(value.config).success) &&
    (value.archive === undefined || isArchive(value.archive));
  return whole ? (value as ImageRecord) : null;
}

/** The image that `record` describes, with its files in `directory`. */
export function toImage(record: ImageRecord, directory: string): Image {
  const file = (role: keyof typeof fileNames, content: Content): ImageFile => {
    return { path: path.join(directory, fileNames[role]), ...content };
  };
  return {
    id: imageId(record),
    name: record.name,
    kernel: file("kernel", record.kernel),
    initramfs: file("initramfs", record.initramfs),
    rootfs: record.rootfs === null ? null : file("rootfs", record.rootfs),
    kernelVersion: record.kernelVersion,
    commandLine: record.commandLine,
    guestAgent: record.guestAgent,
    packages: record.packages,
    recipe: record.recipe,
    config: record.config ?? null,
    archive: record.archive ?? null,
  };
}

function isArchive(value: unknown): value is ImageArchive {
  return (
    isObject(value) &&
    typeof value.digest === "string" &&
    (value.reference === null || typeof value.reference === "string") &&
    Array.isArray(value.notices) &&
    value.notices.every((notice) => typeof notice === "string")
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

function isDigest(value: unknown): value is Digest {
  return digestSchema.safeParse(value).success;
}

function isContent(value: unknown): value is Content {
  return isObject(value) && isDigest(value.sha256) && Number.isSafeInteger(value.bytes);
}
