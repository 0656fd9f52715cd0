/** Statements on table `event`. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import type { AgentEvent, AgentId, EventKind } from "@perdure/protocol";
import type { EventQuery, NewEvent, StoredEvents } from "../../core/ports/state-store.ts";

export const eventSql = {
  append: `
    INSERT INTO event (tenant, agent, name, generation, at_ms, kind, data)
    VALUES (:tenant, :agent, :name, :generation, :atMs, :kind, :data)`,
  page: `
    SELECT id, agent, name, generation, at_ms, kind, data FROM event
     WHERE tenant = :tenant AND id > :after
       AND (:agents IS NULL OR agent IN (SELECT value FROM json_each(:agents))
                            OR name IN (SELECT value FROM json_each(:agents)))
       AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
     ORDER BY id LIMIT :limit`,
  first: `SELECT min(id) AS id FROM event`,
  last: `SELECT seq AS id FROM sqlite_sequence WHERE name = 'event'`,
  // The oldest up to the first that is young enough: a gap in the middle could not be told.
  collect: `
    DELETE FROM event WHERE id < max(
      coalesce((SELECT id FROM event WHERE at_ms >= :sinceMs ORDER BY id LIMIT 1), :last + 1),
      :last + 1 - :countMax)`,
} as const;

export type EventRows = ReturnType<typeof prepareEventRows>;

export function prepareEventRows(database: DatabaseSync) {
  const append = database.prepare(eventSql.append);
  const page = database.prepare(eventSql.page);
  const first = database.prepare(eventSql.first);
  const last = database.prepare(eventSql.last);
  const collect = database.prepare(eventSql.collect);
  const lastId = (): number => Number(last.get()?.["id"] ?? 0);
  return {
    append: ({ data, ...event }: NewEvent): void => {
      append.run({ ...event, data: JSON.stringify(data) });
    },
    page: ({ tenant, after, limit, agents, kinds }: EventQuery): StoredEvents => {
      const lists = { agents: listOf(agents), kinds: listOf(kinds) };
      const rows = limit === 0 ? [] : page.all({ tenant, after, limit, ...lists });
      const events = rows.map(parse);
      const newest = lastId();
      const isWhole = events.length < limit || limit === 0;
      return {
        events,
        scannedTo: isWhole && limit > 0 ? newest : (events.at(-1)?.id ?? after),
        first: Number(first.get()?.["id"] ?? newest + 1),
        last: newest,
      };
    },
    collect: (sinceMs: number, countMax: number): void => {
      collect.run({ sinceMs, countMax, last: lastId() });
    },
  };
}

function listOf(values: readonly string[] | null): string | null {
  return values === null ? null : JSON.stringify(values);
}

function parse(row: Record<string, SQLOutputValue>): AgentEvent {
  return {
    id: Number(row["id"]),
    agent: String(row["agent"]) as AgentId,
    name: String(row["name"]),
    generation: Number(row["generation"]),
    atMs: Number(row["at_ms"]),
    kind: String(row["kind"]) as EventKind,
    data: JSON.parse(String(row["data"])) as AgentEvent["data"],
  };
}
