/**
 * The checker: what must hold of a world in which nothing is under way, whatever happened before.
 *
 * I1 one machine per agent, and no other process but spares. I2 per agent a machine, a whole checkpoint
 * or a disk; every row has its files and every file its row. I10 the row says what is.
 */
import { expect } from "vitest";
import type { LayerId } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { CheckpointRow } from "../../packages/daemon/src/core/checkpoint.ts";
import { eventViolations } from "./event-check.ts";
import { layerPath, type AgentFolder } from "./checkpoint-folder.ts";
import { Guest } from "./guest.ts";
import type { World } from "./world.ts";

const settledStates = new Set(["awake", "asleep", "stopped", "quarantined", "failed"]);

export interface CheckOptions {
  /** Files that a failed verb left until the next collection are allowed. */
  readonly leftovers?: boolean;
  /** Room that is held and not given back is allowed. */
  readonly reserved?: boolean;
}

/** Fails where anything is wrong once nothing is under way any more. */
export async function expectWhole(world: World, options: CheckOptions = {}): Promise<void> {
  await world.time.flush();
  expect(await violationsOf(world, options)).toEqual([]);
}

/** Everything that is wrong; empty where all is right. */
export async function violationsOf(
  world: World,
  { leftovers = false, reserved = false }: CheckOptions = {},
): Promise<string[]> {
  const found = [...world.violations];
  const agents = await world.state.allAgents();
  found.push(...(await eventViolations(world.state, agents)));
  const known = new Set<string>(agents.map(({ id }) => id));
  for (const agent of agents) {
    const rows = await world.state.checkpoints(agent.id);
    found.push(...agentViolations(world, agent, rows, leftovers));
  }
  const hot = world.hotChildren.all;
  for (const { owner } of hot) known.add(owner);
  for (const id of world.folder.agents.keys()) {
    if (!known.has(id)) found.push(`I2: folder ${id} belongs to no agent`);
  }
  const used = new Set<string>([
    ...agents.flatMap(({ lease }) => (lease === null ? [] : [lease.machine.id])),
    ...world.substrate.spares.map(({ record }) => record.id),
    ...hot.map(({ machine }) => machine.record.id),
  ]);
  for (const { record } of world.host.processes) {
    if (!used.has(record.id)) found.push(`I1: process ${record.id} belongs to nobody`);
  }
  if (!reserved && world.folder.reservedBytes !== 0) {
    found.push(`${world.folder.reservedBytes} bytes stay reserved`);
  }
  return found;
}

function agentViolations(
  world: World,
  agent: Agent,
  rows: readonly CheckpointRow[],
  leftovers: boolean,
): string[] {
  const found: string[] = [];
  const complain = (what: string): void =>
    void found.push(`${what} (${agent.name}, ${agent.state})`);
  if (agent.state === "removed") {
    // Marked, and not finished by the daemon that marked it: the next one does. No machine may be left.
    if (agent.lease !== null && world.host.process(agent.lease.machine.id) !== null) {
      complain("I1: a machine of a removed agent");
    }
    return found;
  }
  if (!settledStates.has(agent.state)) complain("the agent is in no settled state");
  const folder = world.folder.agents.get(agent.id);
  if (folder === undefined) {
    complain("I2: the agent has no folder");
    return found;
  }
  const layers = wantedLayers(agent, rows);
  for (const layer of layers) {
    if (!folder.layers.has(layer) || world.files.read(layerPath(agent.id, layer)) === null) {
      complain(`I2: layer ${layer} is gone`);
    }
  }
  for (const { id, digest } of rows) {
    const stored = folder.checkpoints.get(id);
    if (stored?.digest !== digest) complain(`I2: checkpoint ${id} is a row without its files`);
  }
  if (!leftovers) found.push(...leftoversOf(agent, folder, rows, layers));

  const machine = agent.lease === null ? null : world.host.process(agent.lease.machine.id);
  if (agent.state === "awake") {
    if (agent.lease?.letOut !== true) complain("I10: awake, but not let out");
    if (machine === null) complain("I10: awake without a machine");
    else if (machine.spec.shape.memoryBytes !== agent.shape.memoryBytes) complain("another size");
    else if (machine.guest instanceof Guest && !isFilled(machine.guest, agent)) {
      complain("its file system is not as large as its row says");
    } else if (!machine.running && agent.paused === null)
      complain("awake, but its CPUs stand still");
  } else {
    if (agent.lease !== null) complain("I1: a lease without being awake");
    if (agent.disk === null) complain("I2: neither a machine nor a disk");
  }
  if (agent.head !== null && !rows.some(({ id }) => id === agent.head?.checkpoint)) {
    complain("I2: the newest checkpoint is not recorded");
  }
  if (agent.state === "asleep" && agent.head?.continued !== false) {
    complain("I3: asleep on a checkpoint that was continued");
  }
  return found;
}

function isFilled({ memory: { fileSystemBytes } }: Guest, { shape, grownBytes }: Agent): boolean {
  return fileSystemBytes === shape.diskBytes || (grownBytes ?? null) !== null;
}

function wantedLayers(agent: Agent, rows: readonly CheckpointRow[]): Set<LayerId> {
  const { lease, disk } = agent;
  return new Set<LayerId>([
    ...rows.flatMap((row) => row.layers),
    ...(lease === null ? (disk ?? []) : [...lease.lowerLayers, lease.topLayer]),
  ]);
}

function leftoversOf(
  agent: Agent,
  folder: AgentFolder,
  rows: readonly CheckpointRow[],
  layers: ReadonlySet<LayerId>,
): string[] {
  const ids = new Set(rows.map(({ id }) => id));
  const left = [
    ...rows
      .filter(({ id, name }) => name === null && id !== agent.head?.checkpoint)
      .map(({ id }) => id),
    ...[...folder.checkpoints.keys()].filter((id) => !ids.has(id)),
    ...[...folder.layers].filter((layer) => !layers.has(layer)),
    ...folder.partial,
  ];
  return left.map((file) => `left over: ${file} (${agent.name}, ${agent.state})`);
}
