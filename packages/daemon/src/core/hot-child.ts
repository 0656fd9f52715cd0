/** Makes hot children (hot-children.ts): a machine from a spare up to its first answer, and no further. */
import { makeId, PerdureError, type LayerId, type AgentId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { whyFailed } from "./fail.ts";
import { filesInPlace, cutSource, makeForkFiles, sourceOf, type CutSource } from "./fork-files.ts";
import type { HotChild, HotUse } from "./hot-children.ts";
import { planClock } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";
import { loadState, takeSpare } from "./load.ts";
import { verifiedChecks } from "./opened.ts";
import type { OpenedCheckpoint } from "./ports/checkpoint-store.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { DiskChain, Machine } from "./ports/substrate.ts";

interface HotPlan {
  readonly use: HotUse;
  readonly count: number;
  /** The checkpoint, where it was opened for the one that is made. */
  readonly opened?: OpenedCheckpoint;
}

/** Makes it `count` hot children of the checkpoint. Holds the lane of `actor`. @throws `too_many`, `agent_state` */
export async function keepHotChildren(
  actor: Actor,
  row: CheckpointRow,
  { use, count, opened }: HotPlan,
): Promise<void> {
  await actor.parts.hotChildren.keep(row.id, use, count, async (missing) => {
    // A restore needs a machine over the checkpoint's own base: the agent's other checkpoints are.
    const source =
      opened === undefined
        ? await cutSource(actor, row, use === "fork" ? missing : 1)
        : await sourceOf(actor, row, opened);
    return () => prepare(source, use);
  });
}

async function removeFiles(
  { parts: { checkpoints } }: Actor,
  { use, owner, topLayer }: Pick<HotChild, "use" | "owner" | "topLayer">,
): Promise<void> {
  if (use === "fork") await checkpoints.removeAgent(owner);
  else await checkpoints.removeLayer(owner, topLayer);
}

/** Holds the lane of the origin. @throws what a wake may throw; nothing of it is left then */
async function prepare(source: CutSource, use: HotUse): Promise<HotChild> {
  const { origin: actor, row } = source;
  const { parts, agent } = actor;
  if (!row.memory || !row.frozen) {
    const lack = row.memory ? "a workload that did not freeze" : "no memory";
    throw new PerdureError(
      "agent_state",
      `Checkpoint ${row.id} can have no hot children: it has ${lack}`,
      { hint: "Take another checkpoint of the agent while it is awake" },
    );
  }
  const owner =
    use === "restore" ? actor.id : makeId("ag", parts.clock.nowMs(), parts.clock.randomBytes(10));
  const topLayer = actor.newLayerId();
  let machine: Machine | null = null;
  let link: GuestLink | null = null;
  try {
    const { opened, state, base } =
      use === "restore" ? await filesInPlace(source) : await makeForkFiles(source, owner);
    if (state === null) throw new PerdureError("internal", `${row.id} has lost its memory`);
    const { shape } = opened.manifest.substrate;
    await parts.checkpoints.createLayer(owner, topLayer, agent.shape.diskBytes);
    await parts.checkpoints.syncLayer(owner, topLayer);
    const chain = await chainOf(actor, owner, [...row.layers, topLayer]);
    machine = await takeSpare(actor, await actor.spec(base, shape), opened.manifest.substrate);
    link = await parts.links.connect(machine.linkPath);
    const loaded = machine.injectMemory(state.pages());
    loaded.catch(() => undefined); // Awaited with the disk, or after the machine was ended.
    await machine.prepareWake(chain);
    await loadState(machine, state, chain, loaded);
    await Promise.all([machine.run(), link.sync(row.generation, engineLimits.syncMs)]);
    const clocks = planClock(opened.manifest.substrate, machine.facts, null);
    if (clocks.source !== null) await link.useClockSource(clocks.source);
    const { frozen } = await link.info(engineLimits.gateMs);
    if (!frozen) throw new PerdureError("freeze_timeout", "The workload is not frozen");
    // Rehearsed: the one of the agent that it becomes is written over it in a fifth of the time.
    if (use === "fork") await link.setIdentity(await parts.identities.make("hot"));
    await machine.pause();
    const verified = verifiedChecks(opened);
    const { id: checkpoint } = row;
    const files = { use, owner, topLayer };
    const reachedBytes = shape.diskBytes;
    const held = { machine, link, base, reachedBytes, verified };
    const made = { ...files, origin: actor.id, checkpoint, ...held };
    return { ...made, end: () => end(actor, made) };
  } catch (error) {
    const why =
      machine === null
        ? error
        : await whyFailed(actor, machine, "the making of a hot child", error, "Ask for it again");
    link?.close("the hot child failed");
    await machine?.kill();
    await removeFiles(actor, { use, owner, topLayer });
    throw why;
  }
}

async function end(actor: Actor, child: Omit<HotChild, "end">): Promise<void> {
  child.link.close("the hot child is not needed");
  try {
    await child.machine.kill();
    await removeFiles(actor, child);
  } catch (error) {
    const { message } = PerdureError.from(error);
    const facts = { agent: child.origin, message };
    actor.parts.log("warn", "A hot child could not be ended", facts);
  }
}

/** As `actor.disk`, in the folder of `owner`. */
async function chainOf(
  actor: Actor,
  owner: AgentId,
  layers: readonly LayerId[],
): Promise<DiskChain> {
  const { imagePath } = await actor.disk([]);
  const { checkpoints } = actor.parts;
  return { imagePath, layerPaths: layers.map((layer) => checkpoints.layerPath(owner, layer)) };
}
