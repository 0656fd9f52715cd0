/** What this host has already of a part that comes in: found by its name, believed by its digest. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { agentIdSchema } from "@perdure/protocol";
import type { ImportPlace } from "../../core/ports/export-file.ts";
import { Damage } from "../damage.ts";
import { linkLayerFile } from "../local/layer.ts";
import type { StoreContext } from "../local/store-context.ts";
import type { ExportPart } from "./part.ts";

export interface Twin {
  /** Gives it a name in the new agent's folder, where it needs one there. Durable. */
  link(path: string): Promise<void>;
}

/** The same immutable file of another agent, or of a template; null where there is none. */
export async function findTwin(
  context: StoreContext,
  part: ExportPart,
  { agent, templateBase }: ImportPlace,
): Promise<Twin | null> {
  if (part.kind !== "layer" && part.kind !== "base") return null;
  if (part.kind === "base" && part.digest === templateBase?.digest) {
    return { link: () => Promise.resolve() };
  }
  for (const name of await readdir(join(context.home, "agents"))) {
    const other = agentIdSchema.safeParse(name);
    if (!other.success || other.data === agent) continue;
    const folder = context.folder(other.data);
    const path = part.kind === "layer" ? folder.layer(part.id) : folder.base(part.digest);
    const file = { part: part.kind, name: part.kind === "layer" ? part.id : part.digest, path };
    if ((await stat(path).catch(() => null))?.size !== part.bytes) continue;
    try {
      // What the file says it must be is not noted anywhere: it may be a lie about another's file.
      const { digest } = await context.verified(other.data).digestOf(file);
      if (digest === part.digest) return { link: (to) => linkLayerFile(path, to) };
    } catch (error) {
      // Gone meanwhile, or known to be damaged.
      if (!(error instanceof Damage)) throw error;
    }
  }
  return null;
}
