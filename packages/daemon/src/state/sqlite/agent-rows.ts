/** Statements on table `agent`. */
import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";
import { dueMs, type Agent } from "../../core/agent.ts";
import type { AgeQuery, AgentQuery } from "../../core/ports/state-store.ts";

/** Those of parameter `:labels`, a JSON object, all of them. */
const hasLabels = `NOT EXISTS (
         SELECT 1 FROM json_each(:labels) AS wanted
          WHERE NOT EXISTS (
                SELECT 1 FROM json_each(document, '$.labels') AS found
                 WHERE found.key = wanted.key AND found.value = wanted.value))`;

export const agentSql = {
  insert: `
    INSERT INTO agent (id, tenant, name, state, revision, due_ms, document)
    VALUES (:id, :tenant, :name, :state, :revision, :dueMs, :document)`,
  update: `
    UPDATE agent
       SET tenant = :tenant, name = :name, state = :state, revision = :revision,
           due_ms = :dueMs, document = :document
     WHERE id = :id AND revision = :expectedRevision`,
  delete: `DELETE FROM agent WHERE id = :id`,
  byId: `SELECT document FROM agent WHERE id = :id`,
  byName: `
    SELECT document FROM agent
     WHERE tenant = :tenant AND name = :name AND state <> 'removed'`,
  list: `
    SELECT document FROM agent
     WHERE tenant = :tenant AND state <> 'removed'
       AND name >= :from AND name < :end AND name <> :after AND ${hasLabels}
     ORDER BY name LIMIT :limit`,
  listInState: `
    SELECT document FROM agent
     WHERE tenant = :tenant AND state = :state AND state <> 'removed'
       AND name >= :from AND name < :end AND name <> :after AND ${hasLabels}
     ORDER BY name LIMIT :limit`,
  oldestFirst: `
    SELECT document FROM agent
     WHERE tenant = :tenant AND state <> 'removed' AND id > :after AND ${hasLabels}
     ORDER BY id LIMIT :limit`,
  newestFirst: `
    SELECT document FROM agent
     WHERE tenant = :tenant AND state <> 'removed' AND id < :after AND ${hasLabels}
     ORDER BY id DESC LIMIT :limit`,
  due: `
    SELECT id, due_ms AS dueMs FROM agent
     WHERE due_ms IS NOT NULL
     ORDER BY due_ms LIMIT :limit`,
  all: `SELECT document FROM agent ORDER BY id`,
  unsettled: `
    SELECT document FROM agent
     WHERE state NOT IN ('asleep', 'stopped', 'quarantined', 'failed')
        OR document ->> 'lease' IS NOT NULL
     ORDER BY id`,
  lastAsleep: `
    SELECT document FROM agent
     WHERE state = 'asleep'
     ORDER BY document ->> 'changedAtMs' DESC LIMIT :limit`,
  ids: `SELECT id FROM agent WHERE id > :after ORDER BY id LIMIT :limit`,
} as const;

export type AgentRows = ReturnType<typeof prepareAgentRows>;

export function prepareAgentRows(database: DatabaseSync) {
  const insert = database.prepare(agentSql.insert);
  const update = database.prepare(agentSql.update);
  const remove = database.prepare(agentSql.delete);
  const byId = database.prepare(agentSql.byId);
  const byName = database.prepare(agentSql.byName);
  const list = database.prepare(agentSql.list);
  const listInState = database.prepare(agentSql.listInState);
  const oldestFirst = database.prepare(agentSql.oldestFirst);
  const newestFirst = database.prepare(agentSql.newestFirst);
  const due = database.prepare(agentSql.due);
  const all = database.prepare(agentSql.all);
  const unsettled = database.prepare(agentSql.unsettled);
  const lastAsleep = database.prepare(agentSql.lastAsleep);
  const ids = database.prepare(agentSql.ids);
  return {
    insert: (agent: Agent): void => {
      refuseTakenName(agent, () => insert.run(columns(agent)));
    },
    update: (agent: Agent, expectedRevision: number): void => {
      const parameters = { ...columns(agent), expectedRevision };
      const { changes } = refuseTakenName(agent, () => update.run(parameters));
      if (changes !== 1 || agent.revision !== expectedRevision + 1) {
        throw new PerdureError(
          "store_failed",
          `Cannot store agent "${agent.name}": its revision is not ${expectedRevision} any more`,
        );
      }
    },
    delete: (id: string): void => void remove.run({ id }),
    byId: (id: string): Agent | null => parse(byId.get({ id })),
    byName: (tenant: string, name: string): Agent | null => parse(byName.get({ tenant, name })),
    list: (query: AgentQuery): Agent[] => {
      const { tenant, limit, label = {} } = query;
      const parameters = { tenant, limit, labels: JSON.stringify(label), ...nameRange(query) };
      const rows =
        query.state === undefined
          ? list.all(parameters)
          : listInState.all({ ...parameters, state: query.state });
      return rows.flatMap((row) => parse(row) ?? []);
    },
    byAge: ({ tenant, label, order, after, limit }: AgeQuery): Agent[] => {
      const labels = JSON.stringify(label);
      const rows =
        order === "oldest-first"
          ? oldestFirst.all({ tenant, labels, limit, after: after ?? "" })
          : newestFirst.all({ tenant, labels, limit, after: after ?? "\u{10ffff}" });
      return rows.flatMap((row) => parse(row) ?? []);
    },
    due: (limit: number) =>
      due.all({ limit }).map(({ id, dueMs }) => ({ id: String(id), dueMs: Number(dueMs) })),
    all: (): Agent[] => all.all().flatMap((row) => parse(row) ?? []),
    unsettled: (): Agent[] => unsettled.all().flatMap((row) => parse(row) ?? []),
    lastAsleep: (limit: number): Agent[] =>
      lastAsleep.all({ limit }).flatMap((row) => parse(row) ?? []),
    ids: (after: string | null, limit: number): string[] =>
      ids.all({ after: after ?? "", limit }).map(({ id }) => String(id)),
  };
}

/** One range on the index: names that begin with the prefix, from `after` on. */
function nameRange({ prefix = "", after = "" }: AgentQuery) {
  return { from: after > prefix ? after : prefix, end: `${prefix}\u{10ffff}`, after };
}

function columns(agent: Agent) {
  const { id, tenant, name, state, revision } = agent;
  const document = JSON.stringify(agent);
  return { id, tenant, name, state, revision, dueMs: dueMs(agent), document };
}

function refuseTakenName<T>(agent: Agent, write: () => T): T {
  try {
    return write();
  } catch (error) {
    if (!(error instanceof Error) || !error.message.includes("agent.tenant, agent.name"))
      throw error;
    throw new PerdureError(
      "agent_exists",
      `Cannot create agent "${agent.name}": another agent already has this name`,
      { hint: "Choose another name, or remove that agent first.", cause: error },
    );
  }
}

function parse(row: Record<string, SQLOutputValue> | undefined): Agent | null {
  return row === undefined ? null : (JSON.parse(String(row["document"])) as Agent);
}
