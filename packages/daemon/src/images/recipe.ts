/**
 * What the images are made of. A recipe is data: its digest tells whether what was built earlier
 * can be used again, so everything that changes the result must be in it.
 */
import { digestOf } from "@perdure/protocol";
import type { CanonicalValue, Digest } from "@perdure/protocol";
import { finishRootfs } from "./finish-rootfs.ts";

/** The distribution that root file systems and kernels come from. */
export const suite = "bookworm";

/** The host name in every image; each agent gets its own when it is made. */
export const defaultHostName = "perdure";

/** Packages beside the essential ones. */
const packages = [
  "bash",
  "ca-certificates",
  "coreutils",
  "curl",
  "git",
  "iproute2",
  "procps",
  "python3",
  "sqlite3",
];

/** Documentation and translations that nothing running in a VM reads; copyright files stay. */
const dpkgOptions = [
  "path-exclude=/usr/share/doc/*",
  "path-include=/usr/share/doc/*/copyright",
  "path-exclude=/usr/share/man/*",
  "path-exclude=/usr/share/info/*",
  "path-exclude=/usr/share/groff/*",
  "path-exclude=/usr/share/lintian/*",
  "path-exclude=/usr/share/locale/*",
];

/** What the kernel needs to find the disk and the guest link, before dependencies. */
const modules = ["virtio_pci", "virtio_blk", "virtio_console"];

/**
 * The kernel command line but for `perdure.root`.
 *
 * - `panic=-1`: a panic asks for a reset at once. The VMM never resets: it pauses, and the console's
 *   tail tells a panic from a reboot. Waiting would leave a hung VM that looks alive.
 * - `init_on_free=1`: freed pages become zero and need not be stored in a checkpoint. Costs about
 *   0.2 s of a boot under emulation.
 * - `no_timer_check`: the boot-time timer check counts ticks against a delay loop, which fails at
 *   random on a busy host.
 * - `cryptomgr.notests`: leaves out self-tests of ciphers, 0.2 s of a boot under emulation.
 * - Left as the kernel has them: address randomisation and CPU mitigations, because switching them
 *   off makes no measurable difference to a boot. What the kernel keeps time by depends on the
 *   accelerator and the host: the VMM adds that.
 */
const kernelOptions = [
  "console=ttyS0",
  "quiet",
  "loglevel=3",
  "panic=-1",
  "init_on_free=1",
  "no_timer_check",
  "cryptomgr.notests",
  "net.ifnames=0",
];

/** Raised when this code, rather than a recipe, changes what a build gives. */
const builder = 1;

/** Makes the root file system; built anew only when this changes. */
export interface RootfsRecipe {
  readonly builder: number;
  readonly suite: string;
  readonly packages: readonly string[];
  readonly dpkgOptions: readonly string[];
  /** Shell script run on the finished tree. */
  readonly finish: string;
  /** Programs that may gain rights when run, beside those that every image has. */
  readonly setuid?: readonly string[];
  /** Length of the ext4 file: the smallest disk that can be made from the image. Null: as short as may be. */
  readonly bytes: number | null;
}

export interface KernelRecipe {
  readonly builder: number;
  readonly suite: string;
  /** Package that depends on the current kernel. */
  readonly package: string;
  readonly modules: readonly string[];
}

export interface ImageRecipe {
  readonly kernel: KernelRecipe;
  readonly rootfs: RootfsRecipe | null;
  readonly commandLine: string;
}

export type ImageKind = "debian" | "tiny";

const kernel: KernelRecipe = { builder, suite, package: "linux-image-cloud-amd64", modules };

/** The kinds of image: `debian` is the default for agents, `tiny` has no disk and serves tests. */
export const recipes: Readonly<Record<ImageKind, ImageRecipe>> = {
  debian: {
    kernel,
    rootfs: {
      builder,
      suite,
      packages,
      dpkgOptions,
      finish: finishRootfs(suite, defaultHostName),
      bytes: 1024 * 1024 * 1024,
    },
    commandLine: [...kernelOptions, "perdure.root=/dev/vda"].join(" "),
  },
  tiny: { kernel, rootfs: null, commandLine: [...kernelOptions, "perdure.root=none"].join(" ") },
};

/** Digest of a recipe or a part of one. */
export function recipeDigest(recipe: ImageRecipe | RootfsRecipe | KernelRecipe): Digest {
  return digestOf(recipe as unknown as CanonicalValue) as Digest;
}
