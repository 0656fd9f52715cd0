/** From a cut to a row: drafts for the checkpoint store, and what makes the written checkpoint count. */
import type { CheckpointKind, LayerId, SubstrateFacts } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import type { CheckpointDraft, PublishedCheckpoint } from "./ports/checkpoint-store.ts";
import { isStep } from "./step.ts";

/** How still the agent was at the cut. */
export interface Quiet {
  readonly frozen: boolean;
  /** Flushed after the freeze: the disk alone is good for a cold start. */
  readonly clean: boolean;
}

export interface CutFacts {
  readonly kind: CheckpointKind;
  readonly name: string | null;
  readonly layers: readonly LayerId[];
  readonly quiet: Quiet;
  readonly substrate: SubstrateFacts;
}

/** What the manifest of the agent's next checkpoint says beyond bytes. */
export async function draftOf(actor: Actor, cut: CutFacts): Promise<CheckpointDraft> {
  const { agent, parts } = actor;
  return {
    checkpoint: actor.newCheckpointId(),
    agent: agent.id,
    tenant: agent.tenant,
    generation: agent.generation,
    kind: cut.kind,
    ...(cut.name === null ? {} : { name: cut.name }),
    parent: agent.head?.checkpoint ?? null,
    createdAtMs: parts.clock.nowMs(),
    frozen: cut.quiet.frozen,
    substrate: cut.substrate,
    disk: {
      image: await actor.imageFacts(),
      layers: cut.layers,
      cleanliness: cut.quiet.clean ? "clean" : "crash-consistent",
    },
  };
}

/** The draft of a checkpoint that holds the newest disk alone. */
export async function diskDraft(
  actor: Actor,
  kind: "stop" | "crash-disk",
  name: string | null,
  clean: boolean,
): Promise<CheckpointDraft> {
  const { substrate } = actor.parts;
  return draftOf(actor, {
    kind,
    name,
    layers: actor.newestLayers(),
    quiet: { frozen: false, clean },
    substrate: await substrate.facts(await actor.spec({ kind: "zero" })),
  });
}

/** The row that makes a written checkpoint count. */
export function rowOf(
  draft: CheckpointDraft,
  published: PublishedCheckpoint,
  pauseMs: number | null,
): CheckpointRow {
  return {
    id: draft.checkpoint,
    agent: draft.agent,
    kind: draft.kind,
    name: draft.name ?? null,
    generation: draft.generation,
    createdAtMs: draft.createdAtMs,
    parent: draft.parent,
    digest: published.digest,
    memory: published.manifest.memory !== undefined,
    frozen: draft.frozen,
    cleanliness: draft.disk.cleanliness,
    layers: draft.disk.layers,
    addedBytes: published.addedBytes,
    pauseMs,
  };
}

/** Names the store's durable steps after the verb. */
export function storeStep(
  actor: Actor,
  verb: "sleep" | "checkpoint" | "stop" | "flatten",
): (step: string) => Promise<void> {
  return async (step) => {
    const name = `${verb}.${step}`;
    if (isStep(name)) await actor.step(name);
  };
}
