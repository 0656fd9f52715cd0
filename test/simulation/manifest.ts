/** Manifests of the simulated checkpoint store. */
import { PAGE_BYTES, type Digest, type Manifest } from "@perdure/protocol";
import type { CheckpointDraft } from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import { sha256, type StoredCheckpoint } from "./checkpoint-folder.ts";

const noDigest = "0".repeat(64) as Digest;

export function buildManifest(
  draft: CheckpointDraft,
  state: StoredCheckpoint["state"],
  layers: Manifest["disk"]["layers"],
): Manifest {
  const { disk, name, ...rest } = draft;
  return {
    format: "perdure.checkpoint",
    version: 1,
    ...rest,
    ...(name === undefined ? {} : { name }),
    ...(state === null ? {} : memoryOf(draft, state)),
    disk: { image: disk.image, layers, cleanliness: disk.cleanliness },
  };
}

function memoryOf(
  draft: CheckpointDraft,
  { base, pages, devices }: NonNullable<StoredCheckpoint["state"]>,
) {
  return {
    memory: {
      pageBytes: PAGE_BYTES,
      base: {
        kind: base.kind,
        digest: base.kind === "zero" ? noDigest : base.digest,
        bytes: draft.substrate.shape.memoryBytes,
      },
      pageMap: { digest: noDigest, bytes: 1 },
      packs: [],
      zeroPages: 0,
      storedPages: pages.size,
    },
    devices: { digest: sha256(devices), bytes: devices.length },
  } satisfies Partial<Manifest>;
}
