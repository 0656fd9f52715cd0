/**
 * Port: where images come from.
 *
 * An image is what a template is booted from: a kernel, an initramfs that holds the guest agent, and
 * a root file system. All three are immutable files, named by what they contain.
 */
import type { Digest, ImageConfig } from "@perdure/protocol";

/** One immutable file of an image. */
export interface ImageFile {
  /** Absolute path on this host. The file has mode 0444 and never changes. */
  readonly path: string;
  readonly sha256: Digest;
  /** Length of the file; a root file system is sparse and takes less room than this. */
  readonly bytes: number;
}

/** A package that the root file system holds, as its package manager calls it. */
export interface ImagePackage {
  readonly name: string;
  readonly version: string;
}

/** The guest agent in the initramfs. */
export interface ImageGuestAgent {
  readonly sha256: Digest;
  /** As the agent prints it, such as `0.1.0`. */
  readonly version: string;
  /** Highest version of the guest link protocol that the agent speaks. */
  readonly protocol: number;
}

/** An image on this host: plain data, safe to keep and to send to a worker. */
export interface Image {
  /** SHA-256 of the canonical JSON of the file digests and the kernel command line. */
  readonly id: Digest;
  /** The name it was built under; several images may share it, the newest one is what it resolves to. */
  readonly name: string;
  readonly kernel: ImageFile;
  readonly initramfs: ImageFile;
  /** ext4, raw; the guest grows it to its disk's size at the first boot. `null` where the initramfs is the whole system (`perdure.root=none`). */
  readonly rootfs: ImageFile | null;
  /** Release of the kernel, such as `6.1.0-57-cloud-amd64`. */
  readonly kernelVersion: string;
  /** Complete kernel command line; a VMM passes it as it is. */
  readonly commandLine: string;
  readonly guestAgent: ImageGuestAgent;
  /** Sorted by name; empty where there is no root file system. */
  readonly packages: readonly ImagePackage[];
  /** Digest of the recipe that it was built from, or of the archive's image that it was made from. */
  readonly recipe: Digest;
  /** How programs run in its agents unless a call says otherwise; null: as user "user", in its home. */
  readonly config: ImageConfig | null;
  /** The archive that it was imported from; null where it was built here. */
  readonly archive: ImageArchive | null;
}

/** What is known of the container image that an image was imported from. */
export interface ImageArchive {
  /** Digest of its configuration, as container tools show it: `sha256:…`. */
  readonly digest: string;
  /** What the archive called it, or null. */
  readonly reference: string | null;
  /** What was not taken over, or deserves a look, in sentences. */
  readonly notices: readonly string[];
}

export interface ImageSource {
  /**
   * The image with this name or id.
   *
   * @throws PerdureError `image_not_found` where there is none, or where one of its files is missing
   * or does not have the recorded length.
   */
  resolve(nameOrId: string): Promise<Image>;

  /** Every whole image on this host, by name, then id. Damaged ones are left out. */
  list(): Promise<Image[]>;

  /** What the image says of itself, for `adopt` on another host. @throws `image_not_found` */
  describe(id: Digest): Promise<string>;

  /**
   * Makes an image of files that lie elsewhere on this host and were verified: whole or not there, durable on
   * return. It gets no name. Does nothing where it is there.
   * @throws `export_invalid` where `description` is none of these files; `disk_full`
   */
  adopt(
    description: string,
    files: {
      readonly kernel: ImageFile;
      readonly initramfs: ImageFile;
      readonly rootfs: ImageFile | null;
    },
  ): Promise<Image>;

  /** Removes what an adoption or build that died left, unless one is under way. */
  tidy(): Promise<void>;
}
