/** What the simulated checkpoint store says of each part of a checkpoint, byte by byte as the real one. */
import { digestOf } from "@perdure/protocol";
import type { AgentId, CheckpointId, VerifiedPart } from "@perdure/protocol";
import type { Verification } from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { MemoryFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import { layerPath, sha256, type AgentFolder } from "./checkpoint-folder.ts";

export async function verifyParts(
  { files, life }: { readonly files: MemoryFiles; readonly life: Life },
  folder: AgentFolder | undefined,
  agent: AgentId,
  checkpoint: CheckpointId,
  { digest, signal, onProgress, known }: Verification,
): Promise<VerifiedPart[]> {
  const parts: VerifiedPart[] = [];
  let readBytes = 0;
  const note = async (
    part: VerifiedPart["part"],
    name: string | null,
    check: "digest" | "presence" | null,
  ): Promise<void> => {
    await life.pass();
    signal.throwIfAborted();
    const verdict = check === null ? "good" : "damaged";
    parts.push({ part, name, verdict, check, detail: check === null ? null : `${part} changed` });
    onProgress(++readBytes, 16);
  };
  const stored = folder?.checkpoints.get(checkpoint);
  const isPublished = stored?.digest === digest && digestOf(stored.manifest) === digest;
  await note("manifest", null, stored === undefined ? "presence" : isPublished ? null : "digest");
  if (stored === undefined || !isPublished) return parts;
  const { manifest, state } = stored;
  if (state !== null) {
    const pages = [...state.pages.values()];
    const wrong = pages.some((page) => sha256(page.bytes) !== page.digest);
    await note(
      "devices",
      null,
      sha256(state.devices) === manifest.devices?.digest ? null : "digest",
    );
    await note("pack", null, wrong ? "digest" : null);
    if (state.base.kind !== "zero") {
      const { path, digest: base } = state.base;
      await note("base", base, files.read(path) === null ? "presence" : null);
    }
  }
  for (const layer of manifest.disk.layers) {
    const key = `layer/${layer.id}`;
    const before = known.get(key);
    const bytes = files.read(layerPath(agent, layer.id));
    const check = bytes === null ? "presence" : sha256(bytes) === layer.digest ? null : "digest";
    if (before === undefined) await note("layer", layer.id, check);
    else parts.push(before);
    const last = parts.at(-1);
    if (last !== undefined) known.set(key, last);
  }
  return parts;
}
