/** Statements on table `request`. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";
import type { KeptAnswer, KeptRequest, KeptRequestBounds } from "../../core/kept-request.ts";

export const requestSql = {
  // An old one of the same key makes way: its row, and so its turn, is a new one.
  forgetOld: `DELETE FROM request WHERE principal = :principal AND key = :key AND at_ms < :sinceMs`,
  insert: `
    INSERT INTO request (principal, key, digest, at_ms, status, body)
    VALUES (:principal, :key, :digest, :atMs, :status, :body)
    ON CONFLICT (principal, key) DO NOTHING`,
  answer: `
    UPDATE request SET status = :status, body = :body WHERE principal = :principal AND key = :key`,
  release: `DELETE FROM request WHERE principal = :principal AND key = :key`,
  byKey: `
    SELECT digest, at_ms, status, body FROM request WHERE principal = :principal AND key = :key`,
  collect: `
    DELETE FROM request WHERE at_ms < :sinceMs OR position IN (
      SELECT position FROM (
        SELECT position,
               row_number() OVER (PARTITION BY principal ORDER BY position DESC) AS of_principal,
               row_number() OVER (ORDER BY position DESC) AS of_all,
               sum(coalesce(octet_length(body), 0)) OVER (ORDER BY position DESC) AS bytes
          FROM request)
       WHERE of_principal > :ofPrincipalMax OR of_all > :countMax OR bytes > :bytesMax)`,
} as const;

export type RequestRows = ReturnType<typeof prepareRequestRows>;

export function prepareRequestRows(database: DatabaseSync) {
  const forgetOld = database.prepare(requestSql.forgetOld);
  const insert = database.prepare(requestSql.insert);
  const answer = database.prepare(requestSql.answer);
  const release = database.prepare(requestSql.release);
  const byKey = database.prepare(requestSql.byKey);
  const collect = database.prepare(requestSql.collect);
  return {
    insert: ({ answer, ...request }: KeptRequest, sinceMs: number): void => {
      const { principal, key } = request;
      forgetOld.run({ principal, key, sinceMs });
      const answered = { status: answer?.status ?? null, body: answer?.body ?? null };
      if (insert.run({ ...request, ...answered }).changes === 1) return;
      throw new PerdureError("idempotency_conflict", `Key "${key}" is kept already`);
    },
    answer: (principal: string, key: string, { status, body }: KeptAnswer): void => {
      answer.run({ principal, key, status, body });
    },
    release: (principal: string, key: string): void => {
      release.run({ principal, key });
    },
    byKey: (principal: string, key: string): KeptRequest | null =>
      parse(principal, key, byKey.get({ principal, key })),
    collect: (bounds: KeptRequestBounds): void => {
      collect.run({ ...bounds });
    },
  };
}

function parse(
  principal: string,
  key: string,
  row: Record<string, SQLOutputValue> | undefined,
): KeptRequest | null {
  if (row === undefined) return null;
  const { digest, at_ms: atMs, status, body } = row;
  return {
    principal,
    key,
    digest: String(digest),
    atMs: Number(atMs),
    answer: status === null ? null : { status: Number(status), body: textOf(body) },
  };
}

function textOf(value: SQLOutputValue | undefined): string | null {
  return typeof value === "string" ? value : null;
}
