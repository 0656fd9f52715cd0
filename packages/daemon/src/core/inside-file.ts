/**
 * Files of an awake agent. What is quick runs inside the lane; bytes, entries and changes flow outside of
 * it: a sleep does not wait for them.
 *
 * What is handed out is begun already, so that a refusal is an error of the call. None of it is a generator:
 * one that is left before it began would not tell the guest so.
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type {
  FileCommand,
  FileCommands,
  FileWrite,
  PathTarget,
  WatchEvent,
} from "./file-command.ts";
import { userOf } from "./exec-default.ts";
import { afterLane, eachSaid, unlessAborted, withLink, type Waker } from "./inside.ts";
import type { FileChange, FileFacts, FolderEntry } from "./ports/guest-link.ts";

export function stat(actor: Actor, wake: Waker, { path, user }: PathTarget): Promise<FileFacts> {
  return withLink(actor, wake, async (link) => link.stat(path, await userOf(actor, user)));
}

/** Outside the lane: a folder of a million files takes its time. */
export function changeFiles(actor: Actor, wake: Waker, command: FileCommand): Promise<void> {
  return afterLane(actor, wake, async (link) => {
    const user = await userOf(actor, command.user);
    switch (command.kind) {
      case "makeFolder":
        return link.makeFolder(command.path, { ...command, user });
      case "movePath":
        return link.movePath(command.from, command.to, { ...command, user });
      case "removePath":
        return link.removePath(command.path, { ...command, user });
    }
  });
}

export async function readFile(
  actor: Actor,
  wake: Waker,
  { path, user, range }: Parameters<FileCommands["readFile"]>[0],
): ReturnType<FileCommands["readFile"]> {
  return withLink(actor, wake, async (link, machine) => {
    const { facts, bytes } = await link.readFile(path, await userOf(actor, user), range);
    return { facts, bytes: eachSaid(actor, machine, bytes) };
  });
}

export async function writeFile(
  actor: Actor,
  wake: Waker,
  { path, user, mode, size, attributes }: FileWrite,
  bytes: AsyncIterable<Uint8Array>,
): Promise<void> {
  await afterLane(actor, wake, async (link) => {
    const options = { user: await userOf(actor, user), mode, size, attributes };
    await link.writeFile(path, options, bytes);
  });
}

export async function listFolder(
  actor: Actor,
  wake: Waker,
  { path, user }: PathTarget,
): Promise<AsyncIterable<FolderEntry>> {
  return withLink(actor, wake, async (link, machine) =>
    begun(eachSaid(actor, machine, link.listFolder(path, await userOf(actor, user)))),
  );
}

/** Nothing changes in an agent that sleeps: a watch keeps none awake. */
export async function watch(
  actor: Actor,
  wake: Waker,
  { path, user, recursive }: PathTarget & { readonly recursive: boolean },
  abort: AbortSignal,
): Promise<AsyncIterable<WatchEvent>> {
  return withLink(actor, wake, async (link, machine) => {
    const as = await userOf(actor, user);
    const changes = eachSaid(actor, machine, link.watch(path, { user: as, recursive }), false);
    return untilInterrupted(await begun(changes), abort);
  });
}

/** `values` with the first one fetched. */
async function begun<T>(values: AsyncIterable<T>): Promise<AsyncIterable<T>> {
  const rest = values[Symbol.asyncIterator]();
  let first: IteratorResult<T> | null = await rest.next();
  const left = async () => (await rest.return?.()) ?? ({ done: true, value: undefined } as const);
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => {
        const next = first === null ? rest.next() : Promise.resolve(first);
        first = null;
        return next;
      },
      return: left,
    }),
  };
}

function untilInterrupted(
  changes: AsyncIterable<FileChange>,
  abort: AbortSignal,
): AsyncIterable<WatchEvent> {
  const rest = changes[Symbol.asyncIterator]();
  let over = false;
  const end = (): IteratorResult<WatchEvent> => {
    if (!over) void rest.return?.();
    over = true;
    return { done: true, value: undefined };
  };
  return {
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        if (over) return end();
        try {
          const change = await unlessAborted(rest.next(), abort);
          return change === null || change.done === true ? end() : change;
        } catch (error) {
          end();
          if (!(error instanceof PerdureError) || error.code !== "interrupted") throw error;
          const { reason } = error.details;
          const said = typeof reason === "string" ? reason : error.message;
          return { done: false, value: { type: "interrupted", reason: said } };
        }
      },
      return: () => Promise.resolve(end()),
    }),
  };
}
