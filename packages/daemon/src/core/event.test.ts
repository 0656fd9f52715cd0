/** Which events a change has; that they are those of every change is held by the simulation's checker. */
import { expect, it } from "vitest";
import type { Digest, LayerId, MachineId } from "@perdure/protocol";
import { sampleAgent, sampleCheckpoint } from "../../../../test/contract/state-store-sample.ts";
import type { Agent, Lease } from "./agent.ts";
import { eventsOf } from "./event.ts";

const agent = sampleAgent("a1", { state: "waking", generation: 4, failure: null });
const lease: Lease = {
  machine: { id: "vm_1" as MachineId } as Lease["machine"],
  route: "wake",
  lowerLayers: [],
  topLayer: "dl_1" as LayerId,
  base: { kind: "template", digest: "a".repeat(64) as Digest },
  letOut: false,
  fallback: "asleep",
};

const told = (before: Agent | null, after: Agent | null, ...also: Parameters<typeof eventsOf>[2]) =>
  eventsOf(before, after, also, 7).map(({ kind, data }) => ({ kind, data }));
const change = (part: Partial<Agent>, before: Agent = agent) =>
  told(before, { ...before, ...part });

it("tells of whom, when and under which generation", () => {
  const after = { ...agent, state: "asleep", generation: 5, revision: 9 } as const;
  expect(eventsOf(agent, after, [], 7)).toEqual([
    {
      atMs: 7,
      kind: "state",
      agent: agent.id,
      name: "a1",
      tenant: "default",
      generation: 5,
      data: { from: "waking", to: "asleep" },
    },
  ]);
});

it("tells nothing of a change that nobody asks about", () => {
  expect(change({})).toEqual([]);
  expect(change({ revision: 1, changedAtMs: 1, storedBytes: 1, resetsAtMs: [1] })).toEqual([]);
});

it("tells of the beginning, and once of the end", () => {
  expect(told(null, agent)).toEqual([
    {
      kind: "created",
      data: { state: "waking", image: "debian", memoryBytes: 2 ** 29, cpus: 1, diskBytes: 2 ** 33 },
    },
  ]);
  expect(change({ state: "removed" })).toEqual([{ kind: "removed", data: {} }]);
  expect(told(agent, null)).toEqual([{ kind: "removed", data: {} }]);
  expect(told({ ...agent, state: "removed" }, null)).toEqual([]);
});

it("tells of a let-out when it is recorded, and not again for the same machine", () => {
  const before = { ...agent, lease };
  const out = { lease: { ...lease, letOut: true }, state: "awake" } as const;
  expect(change(out, before).map(({ kind }) => kind)).toEqual(["state", "let-out"]);
  expect(change({ storedBytes: 5 }, { ...before, ...out })).toEqual([]);
  const other = { ...lease, letOut: true, machine: { ...lease.machine, id: "vm_2" as MachineId } };
  expect(change({ lease: other }, { ...before, ...out })).toMatchObject([
    { kind: "let-out", data: { route: "wake", checkpoint: null } },
  ]);
  expect(change({ lease }, agent)).toEqual([]);
});

it("tells why it failed or is quarantined, with bounds on what others wrote", () => {
  const failure = { reason: "panic", message: "x".repeat(10_000), wayBack: "wake", atMs: 1 };
  const [state, failed] = change({ state: "failed", failure });
  expect(state).toMatchObject({ kind: "state", data: { to: "failed" } });
  expect(failed).toMatchObject({ kind: "failed", data: { reason: "panic", wayBack: "wake" } });
  expect(failed?.data["message"]).toHaveLength(500);
  const quarantine = { reason: "it lied", from: "asleep" } as const;
  expect(change({ state: "quarantined", quarantine })[1]).toEqual({
    kind: "quarantined",
    data: { reason: "it lied" },
  });
});

it("tells of a pause and its end", () => {
  expect(change({ paused: "disk full" })).toEqual([
    { kind: "paused", data: { reason: "disk full" } },
  ]);
  expect(change({ paused: null }, { ...agent, paused: "disk full" })).toEqual([
    { kind: "resumed", data: {} },
  ]);
});

it("tells which settings have changed to what", () => {
  expect(change({ onCrash: "disk", wakeAtMs: 5 })).toEqual([
    { kind: "configured", data: { onCrash: "disk", wakeAtMs: 5 } },
  ]);
});

it("tells of another size when it is set, and not again when it comes", () => {
  const { shape } = agent;
  const sizeWanted = { memoryBytes: 2 * shape.memoryBytes, cpus: shape.cpus };
  const diskBytes = 2 * shape.diskBytes;
  const grown = { shape: { ...shape, diskBytes }, grownBytes: shape.diskBytes };
  const { memoryBytes } = sizeWanted;
  expect(change({ sizeWanted, ...grown })).toEqual([
    { kind: "configured", data: { memoryBytes, diskBytes } },
  ]);
  const come = { shape: { ...shape, memoryBytes }, sizeWanted: null, grownBytes: null };
  expect(change(come, { ...agent, sizeWanted })).toEqual([]);
});

it("tells of checkpoints that are stored, named and dropped", () => {
  const checkpoint = sampleCheckpoint(agent.id, { name: "before" });
  expect(
    told(
      agent,
      agent,
      { kind: "insert-checkpoint", checkpoint },
      { kind: "update-checkpoint", checkpoint: { ...checkpoint, name: null } },
      { kind: "delete-checkpoint", id: checkpoint.id },
    ),
  ).toEqual([
    {
      kind: "checkpoint",
      data: {
        checkpoint: checkpoint.id,
        of: "sleep",
        name: "before",
        memory: true,
        addedBytes: 4096,
      },
    },
    { kind: "kept", data: { checkpoint: checkpoint.id, name: null } },
    { kind: "dropped", data: { checkpoint: checkpoint.id } },
  ]);
});
