/**
 * Grow: gives an awake agent the disk that its row promises. The row has the new size before anything is done,
 * and what is left to do (size.ts); each part may be repeated, and is: at the next wake, at an adoption, when
 * the same size is asked for again, and when a VM that waited for room goes on. Until all is done the view says what is pending.
 *
 * First the VM's disk, then the file system, by the guest's own `resize2fs`: the one that it boots by may
 * be older than this, and a guest without that program grows at its next cold start.
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { engineLimits } from "./limit.ts";
import { agentPaused } from "./no-room.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { Machine } from "./ports/substrate.ts";
import { connectAgain } from "./reconnect.ts";
import { whileMachineRuns } from "./while-machine-runs.ts";

const ROOT_DEVICE = "/dev/vda";
/** Of the end of what the program says, however much the guest sends. */
const SAID_BYTES_MAX = 200;

/** Does what is left to do, where something is; a failure is logged and costs nothing but room. Holds the lane. */
export async function growDisk(actor: Actor): Promise<void> {
  const { agent, machine, parts } = actor;
  if ((agent.grownBytes ?? null) === null || machine === null) return;
  const { diskBytes } = agent.shape;
  try {
    actor.assertNotPaused();
    await machine.growDisk(diskBytes);
    await actor.step("grow.disk-grown");
    const link = actor.link ?? (await connectAgain(actor));
    await answered(actor, machine, (signal) => growFileSystem(actor, link, diskBytes, signal));
    await actor.step("grow.file-system-grown");
    await actor.save({ grownBytes: null });
    await actor.step("grow.noted");
  } catch (error) {
    const { code, message } = PerdureError.from(error);
    parts.log("warn", "A disk could not be grown inside", { agent: actor.id, code, message });
  }
}

/** A guest need not answer, and cannot where its VM waits for room: neither keeps the lane. */
async function answered(
  { agent, parts }: Actor,
  machine: Machine,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const late = parts.clock.wait(engineLimits.growAnswerMs, over.signal).then(() => {
    throw new PerdureError("guest_timeout", "resize2fs did not end in time");
  });
  try {
    await whileMachineRuns(machine, Promise.race([work(over.signal), late]), ({ kind }) =>
      kind === "io-error" ? agentPaused(agent, "disk full") : null,
    );
  } finally {
    over.abort();
  }
}

/** The guest hears of its larger disk a moment later than it is there: until then the program says that it is too small. */
async function growFileSystem(
  { parts }: Actor,
  link: GuestLink,
  bytes: number,
  signal: AbortSignal,
): Promise<void> {
  const { growTriesMax, growRetryMs } = engineLimits;
  for (let tries = 1; ; tries++) {
    const { exitCode, said } = await resize(link, bytes);
    if (exitCode === 0) return;
    if (tries === growTriesMax) {
      throw new PerdureError(
        "guest_error",
        `resize2fs ended with ${exitCode ?? "a signal"}: ${said}`,
      );
    }
    await parts.clock.wait(growRetryMs * 2 ** (tries - 1), signal);
  }
}

async function resize(
  link: GuestLink,
  bytes: number,
): Promise<{ readonly exitCode: number | null; readonly said: string }> {
  const { process } = await link.exec({
    argv: ["resize2fs", ROOT_DEVICE, `${bytes / 1024}K`],
    env: {},
    user: "root",
    cwd: "/",
    stdin: false,
    timeoutMs: engineLimits.growMs,
  });
  let said = Buffer.alloc(0);
  let exitCode: number | null = null;
  for await (const piece of link.attach(process, 0)) {
    if (piece.type === "output")
      said = Buffer.concat([said, piece.bytes]).subarray(-SAID_BYTES_MAX);
    if (piece.type !== "exit") continue;
    ({ exitCode } = piece);
    break;
  }
  await link.forget(process);
  return { exitCode, said: said.toString().trim() };
}
