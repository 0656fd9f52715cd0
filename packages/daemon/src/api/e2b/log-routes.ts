/** What there is to say of a sandbox in the form of logs: its events. */
import type { AgentEvent, AgentId, EventKind } from "@perdure/protocol";
import { z } from "zod";
import type { EventLog } from "../../core/event-log.ts";
import type { E2bServe } from "./e2b-serve.ts";
import { e2bRoutes } from "./e2b-table.ts";

const PAGE = 1_000;
const limit = z.coerce.number().int().min(1).max(1_000).default(1_000);
const momentMs = z.coerce.number().int().min(0);

const logsSchema = z.looseObject({ start: momentMs.default(0), limit });
const logsV2Schema = z.looseObject({
  cursor: momentMs.optional(),
  limit,
  direction: z.enum(["forward", "backward"]).default("forward"),
});

export function logRoutes(serve: E2bServe, events: Pick<EventLog, "page">): void {
  serve(e2bRoutes.logs, { query: logsSchema }, async ({ tenant, agent, query }) => {
    const all = await eventsOf(tenant, await agent());
    const found = all.filter(({ atMs }) => atMs >= query.start).slice(0, query.limit);
    return {
      logs: found.map((event) => ({ timestamp: timestampOf(event), line: lineOf(event) })),
      logEntries: found.map(entryOf),
    };
  });

  serve(e2bRoutes.logsV2, { query: logsV2Schema }, async ({ tenant, agent, query }) => {
    const { cursor, direction } = query;
    const all = await eventsOf(tenant, await agent());
    if (direction === "forward") {
      const found = all.filter(({ atMs }) => atMs >= (cursor ?? 0));
      return { logs: found.slice(0, query.limit).map(entryOf) };
    }
    const found = all.filter(({ atMs }) => atMs <= (cursor ?? Infinity)).toReversed();
    return { logs: found.slice(0, query.limit).map(entryOf) };
  });

  /** As long as they are kept. */
  async function eventsOf(tenant: string, agent: AgentId): Promise<AgentEvent[]> {
    const found: AgentEvent[] = [];
    const filter = { tenant, agents: [agent], kinds: null };
    for (let after: number | null = 0; after !== null;) {
      const page = await events.page(filter, after, PAGE);
      found.push(...page.events);
      after = page.next;
    }
    return found;
  }
}

const levels: Partial<Record<EventKind, string>> = {
  failed: "error",
  quarantined: "error",
  paused: "warn",
};

function entryOf(event: AgentEvent) {
  const { kind, data, generation } = event;
  const said = Object.entries({ ...data, generation });
  return {
    timestamp: timestampOf(event),
    message: lineOf(event),
    level: levels[kind] ?? "info",
    fields: Object.fromEntries(said.map(([name, value]) => [name, String(value)])),
  };
}

function timestampOf({ atMs }: AgentEvent): string {
  return new Date(atMs).toISOString();
}

function lineOf({ kind, data }: AgentEvent): string {
  const said = Object.entries(data).map(([name, value]) => `${name}=${String(value)}`);
  return [kind, ...said].join(" ");
}
