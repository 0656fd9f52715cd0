/**
 * Calls into an awake agent: exec, signals, output; inside-file.ts has files. They are shared work of the lane; an agent
 * that sleeps is woken first, so that no call is lost to a sleep (it is only later).
 *
 * Output and file bytes flow outside the lane: a sleep does not wait for them, it ends them with
 * `interrupted`, and the process inside goes on after the wake.
 */
import { PerdureError, type ProcessView } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { ProcessOutput, Resize, Signal } from "./command.ts";
import { execOf, type ExecWish } from "./exec-default.ts";
import { whyFailed } from "./fail.ts";
import { connectAgain } from "./reconnect.ts";
import { ruleFor } from "./legality.ts";
import type { GuestLink, OutputPiece } from "./ports/guest-link.ts";
import type { Machine } from "./ports/substrate.ts";

const WAKES_PER_CALL_MAX = 3;
const KILL_DEADLINE_MS = 30_000;

/** Runs `call` on the link of the awake agent; `wake` is used where it sleeps. */
export async function withLink<T>(
  actor: Actor,
  wake: (actor: Actor) => Promise<unknown>,
  call: (link: GuestLink, machine: Machine) => Promise<T>,
): Promise<T> {
  const leave = actor.callers.enter();
  try {
    return await withAwakeLink(actor, wake, call);
  } finally {
    leave();
  }
}

async function withAwakeLink<T>(
  actor: Actor,
  wake: (actor: Actor) => Promise<unknown>,
  call: (link: GuestLink, machine: Machine) => Promise<T>,
): Promise<T> {
  for (let wakes = 0; ; wakes++) {
    const done = await actor.lane.shared(async () => {
      const { machine } = actor;
      if (actor.agent.state !== "awake" || machine === null) return null;
      actor.assertNotPaused();
      const value = liveLink(actor).then((link) => call(link, machine));
      return { value: await said(actor, machine, value) };
    });
    if (done !== null) return done.value;
    if (wakes === WAKES_PER_CALL_MAX) {
      throw new PerdureError("agent_state", `Agent "${actor.agent.name}" keeps falling asleep`, {
        hint: "Try again",
      });
    }
    await wake(actor);
  }
}

/** What the guest says to a call, inside the lane or after it. */
export async function said<T>(actor: Actor, machine: Machine, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw await whyFailed(actor, machine, "a call", error);
  }
}

/** The link; connected again where it broke. Two calls that find it broken connect once. */
async function liveLink(actor: Actor): Promise<GuestLink> {
  if (actor.link !== null) return actor.link;
  const pending = connecting.get(actor) ?? connectAgain(actor);
  connecting.set(actor, pending);
  try {
    return await pending;
  } finally {
    connecting.delete(actor);
  }
}

const connecting = new WeakMap<Actor, Promise<GuestLink>>();

export type Waker = (actor: Actor) => Promise<unknown>;

/** @throws `agent_state` where the agent sleeps, or why it could not be called at all */
export function requireAwake({ agent }: Actor): void {
  if (ruleFor("call", agent) === "does") return;
  const message = `Agent "${agent.name}" is ${agent.state}, and the call was not to wake it`;
  throw new PerdureError("agent_state", message, { hint: `"perdure wake ${agent.name}" first` });
}

export async function exec(
  actor: Actor,
  wake: Waker,
  wish: ExecWish,
): Promise<{ process: number; pid: number; generation: number }> {
  // No agent is woken for what names no program. Any other takes its place in the lane at once.
  if (wish.argv === undefined || wish.argv.length === 0) await execOf(actor, wish);
  return withLink(actor, wake, async (link) => ({
    ...(await link.exec(await execOf(actor, wish))),
    generation: actor.agent.generation,
  }));
}

export function signal(
  actor: Actor,
  wake: Waker,
  { process, signal: number, tree }: Omit<Signal, "kind" | "tenant" | "agent">,
): Promise<void> {
  return withLink(actor, wake, (link) => link.signal(process, number, tree, KILL_DEADLINE_MS));
}

export function resize(
  actor: Actor,
  wake: Waker,
  { process, rows, columns }: Omit<Resize, "kind" | "tenant" | "agent">,
): Promise<void> {
  return withLink(actor, wake, (link) => link.resizeTerminal(process, { rows, columns }));
}

export function processes(actor: Actor, wake: Waker): Promise<readonly ProcessView[]> {
  return withLink(actor, wake, (link) => link.processes());
}

export function writeStdin(
  actor: Actor,
  wake: Waker,
  { process, bytes, end }: { process: number; bytes: Uint8Array; end: boolean },
  gone: AbortSignal,
): Promise<void> {
  return afterLane(actor, wake, (link) => link.writeStdin(process, bytes, end), gone);
}

/**
 * For bytes that come or go for as long as the caller takes: only the link is got inside the lane. `gone`: the caller
 * is, though the work may not have ended.
 */
export async function afterLane<T>(
  actor: Actor,
  wake: Waker,
  call: (link: GuestLink) => Promise<T>,
  gone?: AbortSignal,
): Promise<T> {
  const { link, machine } = await withLink(actor, wake, (live, itsMachine) =>
    Promise.resolve({ link: live, machine: itsMachine }),
  );
  return actor.callers.during(said(actor, machine, call(link)), gone);
}

/**
 * As the guest says it, piece by piece. No generator: one that is left before it began would not tell the
 * guest so. `attends` false: whoever reads does not keep the agent awake.
 */
export function eachSaid<T>(
  actor: Actor,
  machine: Machine,
  pieces: AsyncIterable<T>,
  attends = true,
): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator](): AsyncIterator<T> {
      const read = pieces[Symbol.asyncIterator]();
      const inner = attends ? actor.callers.reading(read) : read;
      return {
        next: () => said(actor, machine, inner.next()),
        return: async () => (await inner.return?.()) ?? { done: true, value: undefined },
      };
    },
  };
}

/** Output from `offset` on, then `exit`, or `interrupted` with where to read on. */
export async function output(
  actor: Actor,
  wake: Waker,
  process: number,
  offset: number,
  abort: AbortSignal,
): Promise<AsyncIterable<ProcessOutput>> {
  return withLink(actor, wake, async (link, machine) => {
    const known = (await link.processes()).some((entry) => entry.process === process);
    if (!known) {
      throw new PerdureError(
        "process_not_found",
        `Agent "${actor.agent.name}" knows no process ${process}`,
      );
    }
    return readOutput(eachSaid(actor, machine, link.attach(process, offset)), offset, abort);
  });
}

async function* readOutput(
  output: AsyncIterable<OutputPiece>,
  offset: number,
  abort: AbortSignal,
): AsyncGenerator<ProcessOutput> {
  const pieces = output[Symbol.asyncIterator]();
  let next = offset;
  try {
    for (;;) {
      const piece = await unlessAborted(pieces.next(), abort);
      if (piece === null || piece.done === true) return;
      next = offsetAfter(piece.value, next);
      yield piece.value;
      if (piece.value.type === "exit") return;
    }
  } catch (error) {
    if (error instanceof PerdureError && error.code === "interrupted") {
      const { reason } = error.details;
      yield {
        type: "interrupted",
        reason: typeof reason === "string" ? reason : error.message,
        offset: next,
      };
      return;
    }
    throw error;
  } finally {
    void pieces.return?.();
  }
}

function offsetAfter(piece: OutputPiece, before: number): number {
  switch (piece.type) {
    case "output":
      return piece.offset + piece.bytes.length;
    case "cut":
      return piece.to;
    case "exit":
      return before;
  }
}

/** The value, or null once `abort` fires. */
export function unlessAborted<T>(value: Promise<T>, abort: AbortSignal): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => resolve(null);
    if (abort.aborted) onAbort();
    abort.addEventListener("abort", onAbort, { once: true });
    value.then(resolve, reject).finally(() => abort.removeEventListener("abort", onAbort));
  });
}
