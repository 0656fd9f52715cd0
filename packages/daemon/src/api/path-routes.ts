/** The tree of files of an agent: what stands where, what changes, and what changes it. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { FolderEvent, PathFacts, WatchEventLine } from "@perdure/protocol";
import type { WatchEvent } from "../core/file-command.ts";
import type { FileFacts } from "../core/ports/guest-link.ts";
import type { RouteContext } from "./context.ts";
import { untilGone } from "./gone.ts";
import { jsonLines, sendLines } from "./json-lines.ts";
import { serve } from "./serve.ts";

export function pathRoutes(server: FastifyInstance, { commands, closing }: RouteContext): void {
  serve(server, routes.stat, async ({ tenant, params, query }) =>
    factsOf(await commands.stat({ tenant, ...params, ...query })),
  );

  serve(server, routes.listFolder, async ({ tenant, params, query, reply }) => {
    const lines = jsonLines({
      values: await commands.listFolder({ tenant, ...params, ...query }),
      encode: ({ name, linkTarget, ...facts }): FolderEvent => ({
        type: "entry",
        name,
        ...factsOf(facts),
        linkTarget,
      }),
    });
    return sendLines(reply, lines);
  });

  // The reader's disconnect ends the watch.
  serve(server, routes.watch, async ({ tenant, params, query, reply }) => {
    const target = { tenant, ...params, ...query };
    const lines = jsonLines({
      values: await commands.watch(target, untilGone(reply, closing)),
      encode: lineOf,
      isLast: ({ type }) => type === "interrupted",
      closing: { signal: closing, last: { type: "interrupted", reason: "daemon" } },
    });
    return sendLines(reply, lines);
  });

  serve(server, routes.makeFolder, async ({ tenant, params, body }) => {
    const mode = parseInt(body.mode, 8);
    await commands.execute({ kind: "makeFolder", tenant, ...params, ...body, mode });
  });

  serve(server, routes.movePath, async ({ tenant, params, body }) => {
    await commands.execute({ kind: "movePath", tenant, ...params, ...body });
  });

  serve(server, routes.removePath, async ({ tenant, params, query }) => {
    await commands.execute({ kind: "removePath", tenant, ...params, ...query });
  });
}

function factsOf({ kind, size, mode, uid, gid, mtimeMs }: FileFacts): PathFacts {
  const bits = (mode & 0o7777).toString(8).padStart(3, "0");
  return { kind, size, mode: bits, uid, gid, mtimeMs };
}

function lineOf(event: WatchEvent): WatchEventLine {
  if (!("path" in event)) return event;
  const { type, path, from = path } = event;
  return type === "moved" ? { type, path, from } : { type, path };
}
