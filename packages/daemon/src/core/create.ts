/**
 * Create: waking a fork of the template. The new agent gets an identity of its own before anything
 * in it thaws; a create that dies half-way leaves no agent (its caller was never answered).
 */
import { makeId, PerdureError, type AgentId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import type { Create } from "./command.ts";
import { eventsOf, recorded } from "./event.ts";
import { ownerFacts } from "./owner.ts";
import type { Parts } from "./parts.ts";
import type { Image } from "./ports/image-source.ts";
import { raise } from "./raise.ts";
import { removeFiles } from "./remove.ts";
import { ensureTemplate } from "./template.ts";

/** Checks the request, makes sure of the template, and stores the agent's row: its name is taken. */
export async function prepare(parts: Parts, request: Create): Promise<Agent> {
  const { tenant, name } = request;
  await assertAgentNameFree(parts, tenant, name);
  const image = await parts.images.resolve(request.image);
  if (image.rootfs !== null && image.rootfs.bytes > request.shape.diskBytes) {
    throw new PerdureError(
      "bad_request",
      `diskBytes: image "${image.name}" needs at least ${image.rootfs.bytes} bytes`,
    );
  }
  return parts.imageHolds.during(image.id, () => prepareHeld(parts, request, image));
}

async function prepareHeld(parts: Parts, request: Create, image: Image): Promise<Agent> {
  const { tenant, name } = request;
  const template = await ensureTemplate(parts, tenant, image, request.shape);
  return insertAgent(parts, {
    name,
    tenant,
    image: { id: image.id, name: image.name },
    template: template.key,
    shape: request.shape,
    onCrash: request.onCrash,
    ...(request.start === undefined ? {} : { start: request.start }),
    idleAfterMs: given(request.idleAfterMs, parts.defaults.idleAfterMs),
    ...(request.egress === undefined ? {} : { egress: request.egress }),
    checkpointEveryMs: given(request.checkpointEveryMs, parts.defaults.checkpointEveryMs),
    ...ownerFacts(null, request),
    disk: template.layer === null ? [] : [template.layer.id],
  });
}

type NewFacts =
  | "name"
  | "tenant"
  | "image"
  | "template"
  | "shape"
  | "onCrash"
  | "start"
  | "egress"
  | "idleAfterMs"
  | "checkpointEveryMs"
  | "end"
  | "wakeOnTraffic"
  | "portsPublic"
  | "labels"
  | "env"
  | "disk";

/** Null says something: never. */
function given(value: number | null | undefined, otherwise: number | null): number | null {
  return value === undefined ? otherwise : value;
}

/** Stores the row of an agent that does not run yet: its name is taken. @throws `agent_exists` */
export async function insertAgent(
  parts: Parts,
  facts: Pick<Agent, NewFacts | "sizeWanted"> & { readonly id?: AgentId },
): Promise<Agent> {
  const nowMs = parts.clock.nowMs();
  const agent: Agent = {
    id: makeId("ag", nowMs, parts.clock.randomBytes(10)),
    revision: 1,
    state: "creating",
    paused: null,
    generation: 0,
    head: null,
    lease: null,
    failure: null,
    report: null,
    storedBytes: 0,
    holds: [],
    wakeAtMs: null,
    waitDueMs: null,
    asleepBecause: null,
    quarantine: null,
    resetsAtMs: [],
    createdAtMs: nowMs,
    changedAtMs: nowMs,
    ...facts,
  };
  await parts.state.commit([
    { kind: "insert-agent", agent },
    ...recorded(eventsOf(null, agent, [], nowMs)),
  ]);
  return agent;
}

export async function assertAgentNameFree(
  parts: Parts,
  tenant: string,
  name: string,
): Promise<void> {
  if ((await parts.state.agentByName(tenant, name)) === null) return;
  throw new PerdureError("agent_exists", `Cannot create agent "${name}": the name is taken`, {
    hint: `Choose another name, or "perdure remove ${name}" first`,
  });
}

/** Makes the agent's files and wakes it; on failure nothing of it is left. */
export function firstWake(actor: Actor): Promise<void> {
  return raiseNew(actor, () => wakeFromTemplate(actor));
}

/** Lets `work` make and raise an agent that was just stored; on failure nothing of it is left. */
export async function raiseNew(actor: Actor, work: () => Promise<void>): Promise<void> {
  await actor.lane.exclusive(async () => {
    try {
      await work();
    } catch (error) {
      if (actor.agent.state !== "awake") await removeFiles(actor);
      throw error;
    }
    await actor.save({ storedBytes: await actor.parts.checkpoints.storedBytes(actor.id) });
  });
}

async function wakeFromTemplate(actor: Actor): Promise<void> {
  const { parts, agent } = actor;
  const template = await parts.templates.open(agent.tenant, agent.template);
  if (template === null) {
    throw new PerdureError("template_failed", `Template ${agent.template} is gone`);
  }
  await actor.step("create.inserted");
  await parts.checkpoints.createAgent(agent.id, agent.tenant);
  if (template.layer !== null) {
    await parts.checkpoints.linkLayer(agent.id, template.layer.id, template.layer.path);
  }
  await actor.step("create.folder-made");
  await raise(actor, {
    route: "create",
    fallback: "creating",
    base: template.base,
    state: { pages: noPages, devices: template.devices },
    capturedOn: template.substrate,
    lowerLayers: agent.disk ?? [],
    identity: await parts.identities.make(agent.name),
    verified: [
      { check: "template", outcome: "passed", detail: `Template ${template.key} was verified.` },
    ],
    cut: {
      checkpoint: null,
      kind: "template",
      atMs: template.createdAtMs,
      memory: true,
      disk: "clean",
    },
    otherCut: null,
    headAfter: null,
    advanceClock: false,
  });
}

async function* noPages(): AsyncIterable<never> {
  // A template's memory is all in its base.
}
