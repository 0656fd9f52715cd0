/** Statements on table `checkpoint`. Rows go with their agent. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import type { CheckpointRow } from "../../core/checkpoint.ts";
import type { AgentPageQuery, PlacedCheckpoint } from "../../core/ports/state-store.ts";

export const checkpointSql = {
  insert: `INSERT INTO checkpoint (id, agent, document) VALUES (:id, :agent, :document)`,
  update: `UPDATE checkpoint SET document = :document WHERE id = :id`,
  delete: `DELETE FROM checkpoint WHERE id = :id`,
  byId: `SELECT document FROM checkpoint WHERE id = :id`,
  ofAgent: `SELECT document FROM checkpoint WHERE agent = :agent ORDER BY position`,
  page: `SELECT position, document FROM checkpoint WHERE agent = :agent AND position > :after
     ORDER BY position LIMIT :limit`,
} as const;

export type CheckpointRows = ReturnType<typeof prepareCheckpointRows>;

export function prepareCheckpointRows(database: DatabaseSync) {
  const insert = database.prepare(checkpointSql.insert);
  const update = database.prepare(checkpointSql.update);
  const remove = database.prepare(checkpointSql.delete);
  const byId = database.prepare(checkpointSql.byId);
  const ofAgent = database.prepare(checkpointSql.ofAgent);
  const page = database.prepare(checkpointSql.page);
  return {
    insert: (row: CheckpointRow): void => {
      insert.run({ id: row.id, agent: row.agent, document: JSON.stringify(row) });
    },
    update: (row: CheckpointRow): void => {
      update.run({ id: row.id, document: JSON.stringify(row) });
    },
    delete: (id: string): void => void remove.run({ id }),
    byId: (id: string): CheckpointRow | null => parse(byId.get({ id })),
    ofAgent: (agent: string): CheckpointRow[] =>
      ofAgent.all({ agent }).flatMap((row) => parse(row) ?? []),
    page: ({ agent, after, limit }: AgentPageQuery): PlacedCheckpoint[] =>
      page.all({ agent, after, limit }).flatMap((found) => {
        const row = parse(found);
        return row === null ? [] : { row, place: Number(found["position"]) };
      }),
  };
}

function parse(row: Record<string, SQLOutputValue> | undefined): CheckpointRow | null {
  return row === undefined ? null : (JSON.parse(String(row["document"])) as CheckpointRow);
}
