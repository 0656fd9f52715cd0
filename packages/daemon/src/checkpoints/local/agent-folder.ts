/**
 * Where the files of one agent are:
 *
 *   <home>/agents/<agent>/
 *     key.wrapped                       destroyed first when the agent is removed
 *     checkpoints/<checkpoint>/         manifest.json, page-map, devices
 *     packs/<pack>                      stored pages, shared by checkpoints of the agent
 *     bases/<digest>                    memory bases of its own, in the clear: a VMM maps them
 *     layers/<layer>.qcow2              disk layers; written by VMMs, never parsed here
 *     verified.json                     which bases and layers were verified, and when
 */
import { join } from "node:path";
import type { AgentId, CheckpointId, Digest, LayerId, PackId } from "@perdure/protocol";

export class AgentFolder {
  readonly path: string;

  constructor(home: string, agent: AgentId) {
    this.path = join(home, "agents", agent);
  }

  get key(): string {
    return join(this.path, "key.wrapped");
  }

  get verified(): string {
    return join(this.path, "verified.json");
  }

  get checkpoints(): string {
    return join(this.path, "checkpoints");
  }

  get packs(): string {
    return join(this.path, "packs");
  }

  get bases(): string {
    return join(this.path, "bases");
  }

  get layers(): string {
    return join(this.path, "layers");
  }

  checkpoint(id: CheckpointId): string {
    return join(this.checkpoints, id);
  }

  manifest(id: CheckpointId): string {
    return join(this.checkpoints, id, "manifest.json");
  }

  pageMap(id: CheckpointId): string {
    return join(this.checkpoints, id, "page-map");
  }

  devices(id: CheckpointId): string {
    return join(this.checkpoints, id, "devices");
  }

  pack(id: PackId): string {
    return join(this.packs, id);
  }

  base(digest: Digest): string {
    return join(this.bases, digest);
  }

  layer(id: LayerId): string {
    return join(this.layers, `${id}.qcow2`);
  }
}
