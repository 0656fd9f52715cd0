/** Files of a sandbox but for their bytes: E2B's Filesystem service over our own file commands. */
import { posix } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { PerdureError } from "@perdure/protocol";
import type { FolderEntry } from "../../core/ports/guest-link.ts";
import type { Accounts } from "./account.ts";
import type { Caller } from "./caller.ts";
import type { E2bContext } from "./e2b-context.ts";
import { entriesOf, entryOf } from "./entry.ts";
import { assertGoesOn } from "./stream-end.ts";
import { absolutePath, asUserOrRoot, giveTo, isRefused, throughLinks } from "./inside-path.ts";
import { keepaliveMs, withKeepalive } from "./keepalive.ts";
import type { EntryInfo, Filesystem } from "./schema/filesystem.mjs";
import { watchEvents, Watchers } from "./watcher.ts";

/** Entries in one answer. */
const ENTRIES_MAX = 20_000;

type Service = ServiceImpl<typeof Filesystem>;

/** Nothing at all would be one's home, which nobody means to remove. */
function assertNamed(sent: string): void {
  if (sent === "") throw new PerdureError("bad_request", "Cannot use the path: it is empty");
}

export function filesystemService(
  context: E2bContext,
  accounts: Accounts,
  callerOf: (context: HandlerContext) => Caller,
): Service {
  const { commands, clock, closing } = context;
  const parts = { commands, accounts };
  const watchers = new Watchers(context);

  async function placeOf(handler: HandlerContext, sent: string) {
    const { id, target, user } = callerOf(handler);
    const account = await accounts.account(target, user);
    return { id, target, account, path: absolutePath(sent, account) };
  }
  type Place = Awaited<ReturnType<typeof placeOf>>;

  const factsOf = async ({ target, account, path }: Place) => {
    const { value } = await asUserOrRoot(account, (user) =>
      throughLinks(commands, target, path, "kept", (found) =>
        commands.stat({ ...target, path: found, user }),
      ),
    );
    return value;
  };

  const entryAt = async (place: Place): Promise<EntryInfo> => {
    const { target, account, path } = place;
    return entryOf(parts, target, account, path, await factsOf(place));
  };

  async function makeFolder({ target, account, path }: Place, parents: boolean): Promise<void> {
    const { isRoot } = await asUserOrRoot(account, (user) =>
      throughLinks(commands, target, path, "kept", (found) =>
        commands.execute({
          ...{ kind: "makeFolder", ...target, path: found, user },
          ...{ mode: 0o755, parents },
        }),
      ),
    );
    if (isRoot) await giveTo(commands, target, account, path);
  }

  async function inFolder({ target, account, path }: Place): Promise<FolderEntry[]> {
    const { value } = await asUserOrRoot(account, (user) =>
      throughLinks(commands, target, path, "followed", async (found) => {
        const entries: FolderEntry[] = [];
        for await (const entry of await commands.listFolder({ ...target, path: found, user })) {
          if (entries.push(entry) > ENTRIES_MAX) throw tooMany();
        }
        return entries;
      }),
    );
    return value.sort((one, two) => (one.name < two.name ? -1 : 1));
  }

  /** What is in a folder, and `depth - 1` levels below, each folder before what is in it. */
  async function list(place: Place, depth: number, found: EntryInfo[]): Promise<EntryInfo[]> {
    const { target, account } = place;
    const inside = (await inFolder(place)).map((facts) => ({
      path: posix.join(place.path, facts.name),
      facts,
    }));
    const entries = await entriesOf(parts, target, account, inside);
    for (const [i, entry] of entries.entries()) {
      if (found.push(entry) > ENTRIES_MAX) throw tooMany();
      if (depth > 1 && inside[i]?.facts.kind === "directory") {
        await list({ ...place, path: entry.path }, depth - 1, found).catch((error: unknown) => {
          // It went, or became something else, after its folder was read.
          if (!isRefused(error, "path_not_found") && !isRefused(error, "path_not_folder"))
            throw error;
        });
      }
    }
    return found;
  }

  return {
    stat: async ({ path }, handler) => ({ entry: await entryAt(await placeOf(handler, path)) }),

    makeDir: async ({ path }, handler) => {
      const place = await placeOf(handler, path);
      try {
        await makeFolder(place, false);
      } catch (error) {
        if (!isRefused(error, "path_not_found")) throw error;
        await makeFolder(place, true);
      }
      return { entry: await entryAt(place) };
    },

    move: async ({ source, destination }, handler) => {
      assertNamed(source);
      assertNamed(destination);
      const from = await placeOf(handler, source);
      const to = await placeOf(handler, destination);
      const { target, account } = from;
      const move = () =>
        asUserOrRoot(account, (user) =>
          throughLinks(commands, target, from.path, "kept", (foundFrom) =>
            throughLinks(commands, target, to.path, "kept", (foundTo) =>
              commands.execute({
                ...{ kind: "movePath", ...target, from: foundFrom, to: foundTo, user },
                replace: true,
              }),
            ),
          ),
        );
      try {
        await move();
      } catch (error) {
        if (!isRefused(error, "path_not_found")) throw error;
        // Of the source, or of the folder that it goes into.
        await factsOf(from);
        await makeFolder({ ...to, path: posix.dirname(to.path) }, true);
        await move();
      }
      return { entry: await entryAt(to) };
    },

    listDir: async ({ path, depth }, handler) => {
      const place = await placeOf(handler, path);
      return { entries: await list(place, Math.max(1, depth), []) };
    },

    // What is not there is removed already.
    remove: async ({ path: sent }, handler) => {
      assertNamed(sent);
      const { target, account, path } = await placeOf(handler, sent);
      try {
        await asUserOrRoot(account, (user) =>
          throughLinks(commands, target, path, "kept", (found) =>
            commands.execute({
              ...{ kind: "removePath", ...target, path: found, user },
              recursive: true,
            }),
          ),
        );
      } catch (error) {
        if (!isRefused(error, "path_not_found")) throw error;
      }
      return {};
    },

    watchDir: async function* (request, handler) {
      const place = await watched(handler, request.path);
      const signal = AbortSignal.any([handler.signal, closing]);
      const wanted = { ...place, recursive: request.recursive, wakes: true };
      const everyMs = keepaliveMs(handler.requestHeader.get("keepalive-ping-interval"));
      for await (const said of withKeepalive(
        watchEvents(commands, wanted, signal),
        everyMs,
        clock,
      )) {
        if (said === null) yield { event: { case: "keepalive", value: {} } };
        else if (said === "ready") yield { event: { case: "start", value: {} } };
        else yield { event: { case: "filesystem", value: said } };
      }
      assertGoesOn(handler.signal, closing);
    },

    createWatcher: async ({ path, recursive }, handler) => {
      const place = await watched(handler, path);
      return { watcherId: await watchers.create({ ...place, recursive }) };
    },

    getWatcherEvents: ({ watcherId }, handler) =>
      watchers.take(callerOf(handler), watcherId).then((events) => ({ events })),

    removeWatcher: ({ watcherId }, handler) => {
      watchers.remove(callerOf(handler), watcherId);
      return {};
    },
  } satisfies Service;

  /** @throws `path_not_folder` where it is no folder */
  async function watched(handler: HandlerContext, sent: string) {
    const place = await placeOf(handler, sent);
    const { id, target, account, path } = place;
    const { kind } = await factsOf(place);
    if (kind !== "directory" && kind !== "link") {
      throw new PerdureError("path_not_folder", `Cannot watch "${path}": it is no folder`);
    }
    const { value, isRoot } = await asUserOrRoot(account, async (user) => {
      const use = (found: string) =>
        commands.listFolder({ ...target, path: found, user }).then(async (entries) => {
          await entries[Symbol.asyncIterator]().return?.();
          return found;
        });
      return throughLinks(commands, target, path, "followed", use);
    });
    return { id, target, path: value, user: isRoot ? "0" : account.name };
  }
}

function tooMany(): ConnectError {
  return new ConnectError(`There are more than ${ENTRIES_MAX} entries`, Code.ResourceExhausted);
}
