/**
 * Import: a new agent from a file. What it holds was another agent's, so it is one of its own (I3): new id,
 * new key, and at its first wake, by the route `import`, an identity of its own (`arrival.ts`). Its
 * checkpoints are written anew, under its key and this host's signature; they say where they came from.
 *
 * Until the transaction that makes it an agent to be woken it is being created: one that dies half-way leaves
 * nothing but, at most, a whole image.
 */
import { PerdureError, type CheckpointId, type Digest } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { agentView, type Agent } from "./agent.ts";
import { checkpointView, type CheckpointRow } from "./checkpoint.ts";
import { collectOld } from "./collect.ts";
import type { Imported } from "./transfer-command.ts";
import { assertAgentNameFree, insertAgent } from "./create.ts";
import { ownerFacts } from "./owner.ts";
import type { Parts } from "./parts.ts";
import type { CheckpointDraft } from "./ports/checkpoint-store.ts";
import type { AgentImport, ExportContents } from "./ports/export-file.ts";
import { rowOf } from "./publish.ts";
import { removeFiles } from "./remove.ts";

/** Stores the row of the new agent: its name is taken. @throws `agent_exists`, `image_not_found` */
export async function prepareImport(
  parts: Parts,
  { tenant, name }: { readonly tenant: string; readonly name: string },
  { contents }: AgentImport,
): Promise<Agent> {
  await assertAgentNameFree(parts, tenant, name);
  const { agent, image } = contents;
  if (image === null && !(await hasImage(parts, agent.image.id))) {
    throw new PerdureError(
      "image_not_found",
      `Cannot import agent "${name}": its image "${agent.image.name}" is neither in the file nor on this host`,
      { hint: "Export the agent with its image (without --without-image)" },
    );
  }
  const { shape, template, onCrash, start, idleAfterMs, checkpointEveryMs } = agent;
  const { disk } = headOf(contents).manifest;
  const insert = (): Promise<Agent> =>
    insertAgent(parts, {
      name,
      tenant,
      image: agent.image,
      template,
      shape,
      onCrash,
      ...(start === undefined ? {} : { start }),
      idleAfterMs,
      checkpointEveryMs,
      ...ownerFacts(null, {}),
      disk: disk.layers.map(({ id }) => id),
    });
  // One that comes with the file is held when it is there.
  const isThere = await hasImage(parts, agent.image.id);
  return isThere ? parts.imageHolds.during(agent.image.id, insert) : insert();
}

async function hasImage(parts: Parts, image: Digest): Promise<boolean> {
  return parts.images.resolve(image).then(
    () => true,
    () => false,
  );
}

function headOf({ checkpoints, head }: ExportContents) {
  const found = checkpoints.find(({ manifest }) => manifest.checkpoint === head);
  if (found === undefined) throw new PerdureError("internal", "An export has no head");
  return found;
}

/** Takes the file in as this agent, whose row was just stored; on failure nothing of it is left. */
export async function takeIn(actor: Actor, file: AgentImport): Promise<Imported> {
  return actor.lane.exclusive(async () => {
    try {
      const rows = await store(actor, file);
      const { agent, signer, exportedAtMs } = file.contents;
      return {
        agent: agentView(actor.agent, actor.parts.clock.nowMs()),
        checkpoints: rows.map(checkpointView),
        from: { agent: agent.id, name: agent.name, signer, exportedAtMs },
      };
    } catch (error) {
      if (actor.agent.state === "creating") await removeFiles(actor);
      throw error;
    }
  });
}

async function store(actor: Actor, file: AgentImport): Promise<readonly CheckpointRow[]> {
  const { parts, id } = actor;
  const { contents } = file;
  await actor.step("import.inserted");
  await parts.checkpoints.createAgent(id, actor.agent.tenant);
  await actor.step("import.folder-made");
  const held = await parts.checkpoints.reserve(id, file.roomBytes);
  try {
    await receive(actor, file);
    await actor.step("import.received");
    const rows = await writeAnew(actor, file);
    await adoptImage(actor, file);
    const at = contents.checkpoints.findIndex(
      ({ manifest }) => manifest.checkpoint === contents.head,
    );
    const head = rows[at];
    if (head === undefined) throw new PerdureError("internal", "An import lost its head");
    await actor.save(
      {
        state: head.memory ? "asleep" : "stopped",
        head: { checkpoint: head.id, continued: false },
        disk: head.layers,
        identityDue: true,
      },
      rows.map((checkpoint) => ({ kind: "insert-checkpoint", checkpoint })),
    );
    await actor.step("import.published");
    await collectOld(actor);
    await actor.step("import.collected");
    return rows;
  } finally {
    held.release();
  }
}

async function receive({ agent, parts }: Actor, file: AgentImport): Promise<void> {
  // A template of that key may be another boot of the same image: its base counts by its digest.
  const template = await parts.templates.open(agent.tenant, agent.template).catch(() => null);
  await file.receive({
    agent: agent.id,
    templateBase: template?.base ?? null,
    storeImage: file.contents.image !== null && !(await hasImage(parts, agent.image.id)),
  });
}

/** Each checkpoint of the file as one of this agent's own, oldest first. */
async function writeAnew(actor: Actor, file: AgentImport): Promise<readonly CheckpointRow[]> {
  const { parts } = actor;
  const { contents } = file;
  const rows: CheckpointRow[] = [];
  // Not what it was taken after, but what it shares its pages with: the one before it in the file.
  let parent: CheckpointId | null = null;
  for (const { manifest, digest, name } of contents.checkpoints) {
    const { checkpoint, frozen, substrate, disk, createdAtMs } = manifest;
    const draft: CheckpointDraft = {
      checkpoint: actor.newCheckpointId(),
      agent: actor.id,
      tenant: actor.agent.tenant,
      generation: 0,
      kind: "import",
      ...(name === null ? {} : { name }),
      parent,
      createdAtMs,
      frozen,
      substrate,
      disk: {
        image: disk.image,
        layers: disk.layers.map(({ id }) => id),
        cleanliness: disk.cleanliness,
      },
      importedFrom: { agent: manifest.agent, checkpoint, digest, signer: contents.signer },
    };
    const state = await file.open(checkpoint);
    const written = await parts.checkpoints.write(draft, state, () => undefined);
    rows.push(rowOf(draft, written, null));
    parent = draft.checkpoint;
    await actor.step("import.checkpoint-written");
  }
  return rows;
}

/** Last of all: an image that nobody stands on is all that a crash may leave. */
async function adoptImage({ agent, parts }: Actor, { image }: AgentImport): Promise<void> {
  if (image === null) return;
  const { description, kernel, initramfs, rootfs } = image;
  const adopted = await parts.images.adopt(description, { kernel, initramfs, rootfs });
  if (adopted.id === agent.image.id) {
    await parts.imageHolds.hold(agent.image.id);
    return;
  }
  throw new PerdureError("export_invalid", "The image in the file is not the agent's", {
    hint: "Export the agent again, or take another copy of the file",
  });
}
