/** Statements on table `api_key`. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { keyLimits, PerdureError } from "@perdure/protocol";
import type { ApiKey } from "../../core/api-key.ts";
import type { KeyQuery } from "../../core/ports/state-store.ts";

export const keySql = {
  insert: `INSERT INTO api_key (id, tenant, name, document) VALUES (:id, :tenant, :name, :document)`,
  touch: `UPDATE api_key SET last_used_ms = :atMs WHERE id = :id`,
  delete: `DELETE FROM api_key WHERE id = :id`,
  count: `SELECT count(*) AS count FROM api_key WHERE tenant = :tenant`,
  byId: `SELECT document, last_used_ms FROM api_key WHERE id = :id`,
  byName: `SELECT document, last_used_ms FROM api_key WHERE tenant = :tenant AND name = :name`,
  list: `
    SELECT document, last_used_ms FROM api_key
     WHERE tenant = :tenant AND name > :after ORDER BY name LIMIT :limit`,
} as const;

export type KeyRows = ReturnType<typeof prepareKeyRows>;

export function prepareKeyRows(database: DatabaseSync) {
  const insert = database.prepare(keySql.insert);
  const touch = database.prepare(keySql.touch);
  const remove = database.prepare(keySql.delete);
  const count = database.prepare(keySql.count);
  const byId = database.prepare(keySql.byId);
  const byName = database.prepare(keySql.byName);
  const list = database.prepare(keySql.list);
  return {
    insert: (key: ApiKey): void => {
      const { id, tenant, name } = key;
      if (byName.get({ tenant, name }) !== undefined) throw nameTaken(name);
      if (Number(count.get({ tenant })?.["count"]) >= keyLimits.keysMax) throw tooMany();
      insert.run({ id, tenant, name, document: JSON.stringify(key) });
    },
    touch: (id: string, atMs: number): void => void touch.run({ id, atMs }),
    delete: (id: string): void => void remove.run({ id }),
    byId: (id: string): ApiKey | null => parse(byId.get({ id })),
    byName: (tenant: string, name: string): ApiKey | null => parse(byName.get({ tenant, name })),
    list: ({ tenant, after, limit }: KeyQuery): ApiKey[] =>
      list.all({ tenant, after, limit }).flatMap((row) => parse(row) ?? []),
  };
}

function parse(row: Record<string, SQLOutputValue> | undefined): ApiKey | null {
  if (row === undefined) return null;
  const { document, last_used_ms: lastUsedMs } = row;
  const lastUsedAtMs = lastUsedMs == null ? null : Number(lastUsedMs);
  return { ...(JSON.parse(String(document)) as ApiKey), lastUsedAtMs };
}

function nameTaken(name: string): PerdureError {
  return new PerdureError("key_exists", `Cannot make key "${name}": another key has this name`, {
    hint: "Choose another name, or revoke that key first.",
  });
}

function tooMany(): PerdureError {
  return new PerdureError("too_many", `Cannot make a key: there are ${keyLimits.keysMax} already`, {
    hint: "Revoke one that is no longer needed.",
  });
}
