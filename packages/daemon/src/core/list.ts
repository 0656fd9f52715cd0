/**
 * Lists: pages of living agents by name, also for a caller who reaches some only; an agent's checkpoints, and whose a
 * checkpoint is.
 */
import { agentIdSchema, apiLimits, PerdureError } from "@perdure/protocol";
import type { AgentId, CheckpointId, CheckpointsResponse, ListResponse } from "@perdure/protocol";
import { agentView, hasLabels, type Agent } from "./agent.ts";
import { checkpointView } from "./checkpoint.ts";
import type { Commands, ListQuery, PageQuery } from "./command.ts";
import { firstPage } from "./page.ts";
import type { Parts } from "./parts.ts";
import type { StateStore } from "./ports/state-store.ts";

export async function listAgents(
  state: StateStore,
  { agents: only, ...query }: ListQuery,
  nowMs: number,
): Promise<ListResponse> {
  const wanted = { ...query, limit: query.limit + 1 };
  const found =
    only === undefined ? await state.listAgents(wanted) : await listAmong(state, wanted, only);
  const { page, next } = firstPage(found, query.limit, ({ name }) => name);
  return { agents: page.map((agent) => agentView(agent, nowMs)), next };
}

/** @throws `checkpoint_not_found`, also where it is of another tenant */
export async function checkpointById(
  { state, clock }: Pick<Parts, "state" | "clock">,
  tenant: string,
  id: CheckpointId,
): ReturnType<Commands["findCheckpoint"]> {
  const row = await state.checkpoint(id);
  const agent = row === null ? null : await state.agent(row.agent);
  if (row === null || agent?.tenant !== tenant || agent.state === "removed") {
    throw new PerdureError("checkpoint_not_found", `No checkpoint has the id "${id}"`);
  }
  return { agent: agentView(agent, clock.nowMs()), checkpoint: checkpointView(row) };
}

/** Those of a few names and ids are looked up one by one. */
async function listAmong(
  state: StateStore,
  { tenant, prefix = "", state: wanted, label = {}, after = "", limit }: Omit<ListQuery, "agents">,
  only: readonly string[],
): Promise<Agent[]> {
  const found = new Map<string, Agent>();
  for (const ref of only) {
    const id = agentIdSchema.safeParse(ref);
    const agent = id.success ? await state.agent(id.data) : await state.agentByName(tenant, ref);
    if (agent?.tenant === tenant && agent.state !== "removed") found.set(agent.name, agent);
  }
  return [...found.values()]
    .filter(({ name }) => name.startsWith(prefix) && name > after)
    .filter((agent) => wanted === undefined || agent.state === wanted)
    .filter((agent) => hasLabels(agent, label))
    .sort((one, two) => (one.name < two.name ? -1 : 1))
    .slice(0, limit);
}

export async function listCheckpoints(
  state: StateStore,
  agent: AgentId,
  { after = 0, limit = apiLimits.listLimitMax }: Pick<PageQuery, "after" | "limit">,
): Promise<CheckpointsResponse> {
  const found = await state.checkpointPage({ agent, after, limit: limit + 1 });
  const { page, next } = firstPage(found, limit, ({ place }) => place);
  return { checkpoints: page.map(({ row }) => checkpointView(row)), next };
}
