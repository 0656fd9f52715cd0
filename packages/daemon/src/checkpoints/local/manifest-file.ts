/** The manifest of one checkpoint in an agent's folder: read, verified, and about that checkpoint. */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId, Digest, Manifest } from "@perdure/protocol";
import { Damage } from "../damage.ts";
import { MANIFEST_BYTES_MAX, decodeManifest } from "../signature.ts";
import type { AgentFolder } from "./agent-folder.ts";
import type { StoreContext } from "./store-context.ts";

/** @throws Damage, `checkpoint_not_found` */
export async function readManifest(
  context: StoreContext,
  agent: AgentId,
  checkpoint: CheckpointId,
): Promise<{ readonly manifest: Manifest; readonly digest: Digest }> {
  const file = await readBounded(context.folder(agent), agent, checkpoint);
  const signed = decodeManifest(context.keyRing.signing, file);
  const { manifest } = signed;
  if (manifest.agent !== agent || manifest.checkpoint !== checkpoint) {
    throw new Damage("manifest", "format", "its manifest is that of another checkpoint");
  }
  return signed;
}

async function readBounded(
  folder: AgentFolder,
  agent: AgentId,
  checkpoint: CheckpointId,
): Promise<Buffer> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW;
  const file = await open(folder.manifest(checkpoint), flags).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw error;
  });
  if (file === null) {
    throw new PerdureError(
      "checkpoint_not_found",
      `Cannot open checkpoint "${checkpoint}": agent "${agent}" has none with this id`,
      {
        hint: "Go back to another checkpoint, or recover from the disk.",
        details: { agent, checkpoint },
      },
    );
  }
  try {
    const { size } = await file.stat();
    if (size > MANIFEST_BYTES_MAX)
      throw new Damage("manifest", "size", "its manifest is over 1 MiB");
    return await file.readFile();
  } finally {
    await file.close();
  }
}
