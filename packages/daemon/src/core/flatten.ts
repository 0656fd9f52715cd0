/**
 * Flatten: shortens the chain of disk layers of an agent that has no machine. Where cuts do it
 * (compact.ts) nothing is left to do here; chains grow long where they cannot: through sleeps of a VM that
 * does not answer, checkpoints that failed, and no room at the time.
 *
 * - The layers are what a guest's VMM wrote, so they are merged where such files are read at all: in a VM
 *   process, with its own uid and filter. Its CPUs never run, and nothing but a new layer is open for
 *   writing: no layer that a checkpoint or a fork shares is changed.
 * - I2, publish, then forget: the new layer and a checkpoint that names it are durable, then one transaction
 *   makes that the head, then the old one is collected. Memory and devices are those of the old one,
 *   verified as they are read.
 * - Nobody waits for it who wants something of the agent: until it is published it can be dropped at any time.
 */
import { PerdureError, type LayerId } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { collect } from "./collect.ts";
import { LAYERS_WANTED_MAX, layersToKeep } from "./compact.ts";
import { engineLimits } from "./limit.ts";
import { assertRecorded } from "./opened.ts";
import type { CapturedState, CheckpointDraft } from "./ports/checkpoint-store.ts";
import type { PageBatch } from "./ports/page.ts";
import type { Machine } from "./ports/substrate.ts";
import { draftOf, rowOf, storeStep } from "./publish.ts";

/** Whether the chain of an agent without a machine is longer than the next cut would leave it. */
export function isChainLong({ state, disk }: Agent): boolean {
  const rests = state === "asleep" || state === "stopped";
  return rests && (disk?.length ?? 0) > LAYERS_WANTED_MAX;
}

/**
 * Merges layers where at least two can become one, and collects what is needed no more. Holds the lane. Returns
 * the bytes that were freed; null where nothing was to be done.
 *
 * @param signal ends it, as does whoever wants something of the agent
 * @throws `agent_state` where it was ended, `disk_full`, and what `open` of the store throws
 */
export async function flattenDisk(actor: Actor, signal: AbortSignal): Promise<number | null> {
  const row = await headOf(actor);
  if (row === null) return null;
  const { checkpoints } = actor.parts;
  const sizes = await Promise.all(
    row.layers.map((layer) => checkpoints.layerBytes(actor.id, layer)),
  );
  const kept = layersToKeep(sizes);
  if (row.layers.length - kept < 2) return null;
  const mergedBytes = sizes.slice(kept).reduce((sum, bytes) => sum + bytes, 0);
  const roomBytes = mergedBytes + engineLimits.captureSlackBytes;
  const held = await checkpoints.reserve(actor.id, roomBytes);
  const wanted = new AbortController();
  const unwatch = actor.lane.onWaiting(() => wanted.abort());
  try {
    await replaceHead(actor, row, kept, AbortSignal.any([signal, wanted.signal]));
  } finally {
    unwatch();
    held.release();
  }
  const freedBytes = await collect(actor);
  await actor.step("flatten.collected");
  return freedBytes;
}

/** The checkpoint that the agent goes on from, where its disk is all that is newest. */
async function headOf({ id, agent, parts }: Actor): Promise<CheckpointRow | null> {
  const { state, head, disk } = agent;
  if ((state !== "asleep" && state !== "stopped") || head === null || head.continued) return null;
  const row = await parts.state.checkpoint(head.checkpoint);
  if (row === null || row.layers.join() !== disk?.join()) return null;
  // They hold this very checkpoint ready.
  const isHot = parts.hotChildren.all.some(({ checkpoint }) => checkpoint === row.id);
  return isHot || row.agent !== id ? null : row;
}

async function replaceHead(
  actor: Actor,
  old: CheckpointRow,
  kept: number,
  signal: AbortSignal,
): Promise<void> {
  const { checkpoints } = actor.parts;
  const top = actor.newLayerId();
  const layers = [...old.layers.slice(0, kept), top];
  let row: CheckpointRow;
  try {
    await mergeInto(actor, old.layers, kept, top, signal);
    row = await write(actor, old, layers, signal);
  } catch (error) {
    // What cannot be removed now is found by the next collection; the first error is the one to tell.
    await checkpoints.removeLayer(actor.id, top).catch(() => undefined);
    throw error;
  }
  await actor.save({ head: { checkpoint: row.id, continued: false }, disk: layers }, [
    { kind: "insert-checkpoint", checkpoint: row },
  ]);
  await actor.step("flatten.published");
}

/** Makes the layer `top`, which reads over the `kept` lowest as `layers` do. Durable. */
async function mergeInto(
  actor: Actor,
  layers: readonly LayerId[],
  kept: number,
  top: LayerId,
  signal: AbortSignal,
): Promise<void> {
  const { parts } = actor;
  const { checkpoints } = parts;
  await checkpoints.createLayer(actor.id, top, actor.agent.shape.diskBytes);
  const chain = await actor.disk([...layers, top]);
  const below = checkpoints.layerPath(actor.id, layers[kept - 1] ?? top);
  const spec = await actor.spec({ kind: "zero" });
  const machine = await parts.substrate.bootCold(spec, chain);
  try {
    await unlessInterrupted(actor, signal, merge(actor, machine, below, top));
  } finally {
    await machine.kill();
  }
  await checkpoints.syncLayer(actor.id, top);
}

async function merge(actor: Actor, machine: Machine, below: string, top: LayerId): Promise<void> {
  const machinePid = machine.record.pid;
  await actor.parts.step("flatten.machine-started", { machinePid });
  await machine.mergeLayers(below, actor.parts.checkpoints.layerPath(actor.id, top));
  // What the VM process still holds back of the layer is written out.
  await machine.pause();
  await actor.parts.step("flatten.layers-merged", { machinePid });
}

/** The old checkpoint once more, over other layers. */
async function write(
  actor: Actor,
  old: CheckpointRow,
  layers: readonly LayerId[],
  signal: AbortSignal,
): Promise<CheckpointRow> {
  const { checkpoints } = actor.parts;
  const opened = await checkpoints.open(actor.id, old.id);
  assertRecorded(actor, old.id, old, opened);
  const { substrate, importedFrom } = opened.manifest;
  const { kind, frozen, generation, createdAtMs } = old;
  const draft: CheckpointDraft = {
    ...(await draftOf(actor, {
      kind,
      name: null,
      layers,
      quiet: { frozen, clean: old.cleanliness === "clean" },
      substrate,
    })),
    frozen,
    generation,
    createdAtMs,
    ...(importedFrom === undefined ? {} : { importedFrom }),
  };
  const state: CapturedState | null =
    opened.state === null
      ? null
      : {
          base: opened.state.base,
          pages: whileUndisturbed(actor, signal, opened.state.pages()),
          devices: opened.state.devices,
          ownBase: false,
        };
  const mark = storeStep(actor, "flatten");
  const published = await checkpoints.write(draft, state, async (step) => {
    await mark(step);
    assertUndisturbed(actor, signal);
  });
  return rowOf(draft, published, old.pauseMs);
}

async function* whileUndisturbed(
  actor: Actor,
  signal: AbortSignal,
  pages: AsyncIterable<PageBatch>,
): AsyncGenerator<PageBatch> {
  for await (const batch of pages) {
    assertUndisturbed(actor, signal);
    yield batch;
  }
}

async function unlessInterrupted<T>(
  actor: Actor,
  signal: AbortSignal,
  work: Promise<T>,
): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const interrupt = (): void => reject(interrupted(actor));
  signal.addEventListener("abort", interrupt);
  if (signal.aborted) interrupt();
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", interrupt);
    // Whichever lost ends with the machine.
    work.catch(() => undefined);
  }
}

function assertUndisturbed(actor: Actor, signal: AbortSignal): void {
  if (signal.aborted) throw interrupted(actor);
}

function interrupted({ agent: { name } }: Actor): PerdureError {
  return new PerdureError(
    "agent_state",
    `Something else was wanted of agent "${name}", or the daemon stops: its disk layers stay as they are`,
    { hint: `"perdure gc ${name}" tries again` },
  );
}
