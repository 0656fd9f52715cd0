/** An image and identities for the simulation; nothing is built, no file is read. */
import { PerdureError, type Digest, type ImageConfig } from "@perdure/protocol";
import type { IdentitySource } from "../../packages/daemon/src/core/ports/identity-source.ts";
import type {
  Image,
  ImageFile,
  ImageSource,
} from "../../packages/daemon/src/core/ports/image-source.ts";
import type { ImageUses } from "../../packages/daemon/src/core/ports/image-workshop.ts";
import type { Random } from "./random.ts";

const file = (name: string, digit: string): ImageFile => ({
  path: `/fake/image/${name}`,
  sha256: digit.repeat(64) as Digest,
  bytes: 4096,
});

export const image: Image = {
  id: "e".repeat(64) as Digest,
  name: "base",
  kernel: file("kernel", "1"),
  initramfs: file("initramfs", "2"),
  rootfs: file("rootfs", "3"),
  kernelVersion: "6.1",
  commandLine: "console=ttyS0",
  guestAgent: { sha256: "4".repeat(64) as Digest, version: "0.1.0", protocol: 1 },
  packages: [],
  recipe: "5".repeat(64) as Digest,
  config: null,
  archive: null,
};

export function createImageSource(config: () => ImageConfig | null): ImageSource {
  return {
    resolve: (nameOrId) =>
      nameOrId === image.id || nameOrId === image.name
        ? Promise.resolve({ ...image, config: config() })
        : Promise.reject(new PerdureError("image_not_found", `No image "${nameOrId}"`)),
    list: () => Promise.resolve([image]),
    describe: () => Promise.resolve(JSON.stringify({ id: image.id })),
    adopt: () => Promise.resolve(image),
    tidy: () => Promise.resolve(),
  };
}

export function createImageUses(): ImageUses {
  const held = new Set<Digest>();
  return {
    hold: (id) => {
      held.add(id);
      return Promise.resolve();
    },
    release: (id) => {
      held.delete(id);
      return Promise.resolve();
    },
    held: () => Promise.resolve([...held]),
  };
}

export function createIdentities(random: Random): IdentitySource {
  const hex = (): string => Buffer.from(random.bytes(16)).toString("hex");
  return {
    make: (hostname) => Promise.resolve({ hostname, machineId: hex(), bootId: hex(), files: [] }),
  };
}
