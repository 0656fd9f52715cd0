/**
 * The parts of an export file, in their order. They follow from the manifests and the image alone: writer and
 * reader make the same list, so a file cannot say that it holds anything else.
 */
import type { CheckpointId, Digest, LayerId, Manifest, PackId } from "@perdure/protocol";

/** How a part's bytes are held against what they must be; `pages`: by the map, page by page. */
type Checked =
  | { readonly by: "sha256" | "blocks"; readonly digest: Digest }
  | { readonly by: "pages" }
  | { readonly by: "use" };

interface PartFacts {
  readonly bytes: number;
  readonly check: Checked;
}

export type ExportPart = PartFacts &
  (
    | { readonly kind: "key" }
    | { readonly kind: "page-map" | "devices"; readonly checkpoint: CheckpointId }
    | { readonly kind: "pack"; readonly id: PackId }
    | { readonly kind: "base"; readonly digest: Digest }
    | { readonly kind: "layer"; readonly id: LayerId; readonly digest: Digest }
    | { readonly kind: "kernel" | "initramfs" | "rootfs" }
  );

export interface ImageDigests {
  readonly kernel: ContentFacts;
  readonly initramfs: ContentFacts;
  readonly rootfs: ContentFacts | null;
}
interface ContentFacts {
  readonly sha256: Digest;
  readonly bytes: number;
}

export const AGENT_KEY_BYTES = 32;

/** What several checkpoints share comes once, with the first of them. */
export function partsOf(
  manifests: readonly Manifest[],
  image: ImageDigests | null,
): readonly ExportPart[] {
  const parts = new Map<string, ExportPart>();
  const add = (name: string, part: ExportPart): void => {
    if (!parts.has(name)) parts.set(name, part);
  };
  if (image !== null) {
    for (const kind of ["kernel", "initramfs", "rootfs"] as const) {
      const file = image[kind];
      if (file === null) continue;
      const { bytes, sha256 } = file;
      add(kind, { kind, bytes, check: { by: "sha256", digest: sha256 } });
    }
  }
  // The key is found to be right when it opens the first page map.
  if (manifests.some(({ memory }) => memory !== undefined)) {
    add("key", { kind: "key", bytes: AGENT_KEY_BYTES, check: { by: "use" } });
  }
  for (const { checkpoint, memory, devices, disk } of manifests) {
    for (const { id, digest, bytes } of disk.layers) {
      add(`layer ${id}`, { kind: "layer", id, digest, bytes, check: { by: "blocks", digest } });
    }
    if (memory === undefined || devices === undefined) continue;
    const { base, pageMap, packs } = memory;
    if (base.kind !== "zero") {
      const { digest, bytes } = base;
      add(`base ${digest}`, { kind: "base", digest, bytes, check: { by: "blocks", digest } });
    }
    for (const { id, bytes } of packs) {
      add(`pack ${id}`, { kind: "pack", id, bytes, check: { by: "pages" } });
    }
    for (const [kind, file] of [
      ["page-map", pageMap],
      ["devices", devices],
    ] as const) {
      const { bytes, digest } = file;
      add(`${kind} ${checkpoint}`, {
        kind,
        checkpoint,
        bytes,
        check: { by: "sha256", digest },
      });
    }
  }
  return [...parts.values()];
}

/** Whether trying to compress it is worth the time: what is encrypted already never shrinks. */
export function isCompressible({ kind }: ExportPart): boolean {
  return kind === "base" || kind === "layer" || kind === "rootfs" || kind === "kernel";
}
