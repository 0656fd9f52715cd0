/** Statements on table `connection`. Rows go with their agent, or when they are old. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import type { ConnectionRow, UnmediatedSince } from "../../core/connection.ts";
import type { AgentPageQuery, PlacedConnection } from "../../core/ports/state-store.ts";

export const connectionSql = {
  insert: `
    INSERT INTO connection (id, agent, unmediated, ended_ms, document)
    VALUES (:id, :agent, :unmediated, :endedMs, :document)`,
  update: `
    UPDATE connection SET unmediated = :unmediated, ended_ms = :endedMs, document = :document
     WHERE id = :id`,
  lose: `
    UPDATE connection
       SET ended_ms = :atMs,
           document = json_set(document, '$.endedAtMs', :atMs, '$.outcome', 'lost',
                               '$.why', 'The daemon ended before it did')
     WHERE ended_ms IS NULL`,
  page: `
    SELECT position, document FROM connection WHERE agent = :agent AND position > :after
     ORDER BY position LIMIT :limit`,
  since: `
    SELECT document, count(*) OVER () AS count FROM connection
     WHERE agent = :agent AND unmediated = 1 AND (ended_ms IS NULL OR ended_ms > :atMs)
     ORDER BY position DESC LIMIT 1`,
  collect: `
    DELETE FROM connection
     WHERE agent = :agent AND unmediated = :unmediated AND ended_ms IS NOT NULL
       AND (ended_ms < :sinceMs OR position <= coalesce((
         SELECT position FROM connection WHERE agent = :agent AND unmediated = :unmediated
          ORDER BY position DESC LIMIT 1 OFFSET :countMax), 0))`,
  forgetStray: `DELETE FROM connection WHERE agent NOT IN (SELECT id FROM agent)`,
  deleteOf: `DELETE FROM connection WHERE agent = :agent`,
} as const;

export type ConnectionRows = ReturnType<typeof prepareConnectionRows>;

export function prepareConnectionRows(database: DatabaseSync) {
  const insert = database.prepare(connectionSql.insert);
  const update = database.prepare(connectionSql.update);
  const lose = database.prepare(connectionSql.lose);
  const page = database.prepare(connectionSql.page);
  const since = database.prepare(connectionSql.since);
  const collect = database.prepare(connectionSql.collect);
  const forgetStray = database.prepare(connectionSql.forgetStray);
  const deleteOf = database.prepare(connectionSql.deleteOf);
  return {
    insert: (row: ConnectionRow): void => {
      insert.run({ ...columns(row), agent: row.agent });
    },
    update: (row: ConnectionRow): void => void update.run(columns(row)),
    lose: (atMs: number): void => {
      forgetStray.run();
      lose.run({ atMs });
    },
    page: ({ agent, after, limit }: AgentPageQuery): PlacedConnection[] =>
      page
        .all({ agent, after, limit })
        .map((found) => ({ row: parse(found), place: Number(found["position"]) })),
    unmediatedSince: (agent: string, atMs: number): UnmediatedSince => {
      const found = since.get({ agent, atMs });
      return found === undefined
        ? { count: 0, last: null }
        : { count: Number(found["count"]), last: parse(found) };
    },
    collect: (agent: string, sinceMs: number, countMax: number): void => {
      for (const unmediated of [0, 1]) collect.run({ agent, sinceMs, countMax, unmediated });
    },
    deleteOf: (agent: string): void => void deleteOf.run({ agent }),
  };
}

function columns(row: ConnectionRow) {
  const { id, endedAtMs: endedMs } = row;
  return { id, unmediated: row.unmediated ? 1 : 0, endedMs, document: JSON.stringify(row) };
}

function parse(row: Record<string, SQLOutputValue>): ConnectionRow {
  return JSON.parse(String(row["document"])) as ConnectionRow;
}
