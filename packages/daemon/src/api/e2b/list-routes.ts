/** Lists of sandboxes and snapshots, and templates by name. */
import { agentNameSchema, PerdureError } from "@perdure/protocol";
import type { AgentId, AgentView } from "@perdure/protocol";
import { z } from "zod";
import type { AgeQuery } from "../../core/ports/state-store.ts";
import type { ImageCommands } from "../../core/image-verb.ts";
import { parse } from "../parse.ts";
import type { Principal } from "../principal.ts";
import { listSchema, snapshotSchema, snapshotsSchema } from "./e2b-request.ts";
import type { E2bContext } from "./e2b-context.ts";
import { findSandbox } from "./e2b-serve.ts";
import type { E2bServe } from "./e2b-serve.ts";
import { e2bRoutes } from "./e2b-table.ts";
import { agentOf, findSnapshot, sandboxIdOf, snapshotIdOf } from "./sandbox-id.ts";
import { imageOf } from "./sandbox-routes.ts";
import { listedSandbox, sandboxState } from "./sandbox-view.ts";

const NEXT_HEADER = "x-next-token";
/** Agents that are looked through at a time. */
const SCAN = 200;

export function listRoutes(serve: E2bServe, context: E2bContext, images: ImageCommands): void {
  const { commands, clock, reach } = context;
  /** Only what has a name is kept. */
  const newName = (): string => `snapshot-${Buffer.from(clock.randomBytes(8)).toString("hex")}`;

  serve(e2bRoutes.listV2, { query: listSchema }, async ({ principal, query, reply }) => {
    const { metadata = {}, state, startedAfter, template, order, limit, nextToken } = query;
    const sinceMs = startedAfter === undefined ? -Infinity : Date.parse(startedAfter);
    const isWanted = (view: AgentView): boolean =>
      (state === undefined || state.includes(sandboxState(view))) &&
      view.createdAtMs > sinceMs &&
      (template === undefined || view.image.name === imageOf(template));
    const found = await scan({
      principal,
      label: metadata,
      order: order === "asc" ? "oldest-first" : "newest-first",
      after: nextToken === undefined ? null : agentIn(nextToken),
      limit: limit + 1,
      isWanted,
    });
    const page = found.slice(0, limit);
    const last = page.at(-1);
    if (found.length > limit && last !== undefined) {
      void reply.header(NEXT_HEADER, sandboxIdOf(last.id));
    }
    return page.map(listedSandbox);
  });

  serve(e2bRoutes.list, { query: listSchema }, async ({ principal, query }) => {
    const found = await scan({
      principal,
      label: query.metadata ?? {},
      order: "newest-first",
      after: null,
      limit: Infinity,
      isWanted: (view) => sandboxState(view) === "running",
    });
    return found.map(listedSandbox);
  });

  interface Scan extends Pick<AgeQuery, "label" | "order" | "after" | "limit"> {
    readonly principal: Principal;
    readonly isWanted: (view: AgentView) => boolean;
  }

  /** Page by page: what is looked for may be far between. */
  async function scan({ principal, label, order, after, limit, isWanted }: Scan) {
    const found: AgentView[] = [];
    for (let place = after; ;) {
      const query = { tenant: principal.tenant, label, order, after: place, limit: SCAN };
      const views = await commands.listByAge(query);
      for (const view of views) {
        if (found.length === limit) return found;
        if (isWanted(view) && isReached(principal, view)) found.push(view);
      }
      const last = views.at(-1);
      if (last === undefined || views.length < SCAN || found.length === limit) return found;
      place = last.id;
    }
  }

  serve(e2bRoutes.snapshot, { body: snapshotSchema }, async ({ tenant, agent, body, reply }) => {
    const target = { tenant, agent: await agent() };
    const name = nameOf(body.name ?? null) ?? newName();
    const { id } = await commands.execute({ kind: "checkpoint", ...target, name });
    void reply.code(201);
    return { snapshotID: snapshotIdOf(id), names: [name] };
  });

  serve(e2bRoutes.snapshots, { query: snapshotsSchema }, async ({ principal, query, reply }) => {
    const { sandboxID, name, limit, nextToken } = query;
    const all = snapshotsOf(principal, sandboxID ?? null, placeIn(nextToken));
    const page = [];
    for await (const { agent, place, view } of all) {
      if (name !== undefined && view.name !== name) continue;
      if (page.length === limit) {
        void reply.header(NEXT_HEADER, page.at(-1)?.token);
        break;
      }
      page.push({ view, token: `${sandboxIdOf(agent)}.${place}` });
    }
    return page.map(({ view }) => ({
      snapshotID: snapshotIdOf(view.id),
      names: [view.name ?? ""],
    }));
  });

  interface Place {
    readonly agent: AgentId;
    readonly after: number;
  }

  /** From behind `place` on, of one agent or all. */
  async function* snapshotsOf(principal: Principal, sandboxId: string | null, place: Place | null) {
    const { tenant } = principal;
    const agents =
      sandboxId === null ? agentsFrom(principal, place?.agent ?? null) : one(principal, sandboxId);
    for await (const agent of agents) {
      const first = place?.agent === agent ? place.after : 0;
      for (let after: number | null = first; after !== null;) {
        const query = { tenant, agent, after, limit: 1 };
        const { checkpoints, next } = await commands.checkpoints(query);
        const [view] = checkpoints;
        after = next === null ? null : Number(next);
        // Those that nobody gave a name are no snapshots.
        if (view != null && view.name !== null)
          yield { agent, view, place: after ?? Number.MAX_SAFE_INTEGER };
      }
    }
  }

  async function* one(principal: Principal, sandboxId: string): AsyncGenerator<AgentId> {
    const view = await findSandbox(context, principal, sandboxId);
    if (view !== null) yield view.id;
  }

  async function* agentsFrom(principal: Principal, from: AgentId | null): AsyncGenerator<AgentId> {
    if (from !== null) yield from;
    const query = { principal, label: {}, order: "oldest-first", isWanted: () => true } as const;
    for (let after = from; ;) {
      const views = await scan({ ...query, after, limit: SCAN });
      for (const { id } of views) yield id;
      const last = views.at(-1);
      if (last === undefined || views.length < SCAN) return;
      after = last.id;
    }
  }

  serve(e2bRoutes.deleteTemplate, {}, async ({ principal, tenant, params }) => {
    const { templateID = "" } = params;
    const { agent, checkpoint } = await findSnapshot(commands, tenant, templateID);
    await reach.assert(principal, agent.id);
    await commands.execute({ kind: "drop", tenant, agent: agent.id, checkpoint: checkpoint.id });
  });

  serve(e2bRoutes.alias, {}, async ({ params }) => {
    const { alias = "" } = params;
    const { id, names } = await images.image(imageOf(alias));
    return { templateID: names[0] ?? id, public: false };
  });

  serve(e2bRoutes.health, {}, ({ reply }) => {
    void reply.code(200);
    return Promise.resolve({ status: "ok" });
  });
}

function isReached({ agents }: Principal, { id, name }: AgentView): boolean {
  return agents === null || agents.includes(id) || agents.includes(name);
}

function agentIn(token: string): AgentId {
  const agent = agentOf(token);
  if (agent !== null) return agent;
  throw new PerdureError("bad_request", 'Cannot read "query.nextToken": it is none of ours', {
    details: { field: "query.nextToken" },
  });
}

function placeIn(token: string | undefined) {
  if (token === undefined) return null;
  const [sandboxId = "", after = ""] = token.split(".", 2);
  const place = z.coerce.number().int().min(0).safeParse(after);
  return { agent: agentIn(sandboxId), after: place.data ?? 0 };
}

/** Null where none was sent. A tag that every snapshot has says nothing. */
function nameOf(sent: string | null): string | null {
  if (sent === null || sent === "") return null;
  return parse(agentNameSchema, sent.replace(/:default$/, ""), "body.name");
}
