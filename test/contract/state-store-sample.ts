/** Agents and checkpoints for tests, each with an id of its own. */
import { makeId } from "@perdure/protocol";
import type { AgentId, Digest } from "@perdure/protocol";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { CheckpointRow } from "../../packages/daemon/src/core/checkpoint.ts";

let serial = 0;

/** Ten bytes that no other call returned. */
function unique(): Uint8Array {
  const bytes = new Uint8Array(10);
  new DataView(bytes.buffer).setUint32(6, ++serial);
  return bytes;
}

/** An asleep agent with a whole document. */
export function sampleAgent(name: string, part: Partial<Agent> = {}): Agent {
  return {
    id: makeId("ag", 1_700_000_000_000, unique()),
    name,
    tenant: "default",
    revision: 0,
    state: "asleep",
    paused: null,
    generation: 3,
    image: { id: "a".repeat(64) as Digest, name: "debian" },
    template: "b".repeat(64) as Digest,
    shape: { memoryBytes: 512 << 20, cpus: 1, diskBytes: 2 ** 33 },
    onCrash: "checkpoint",
    idleAfterMs: 60_000,
    checkpointEveryMs: null,
    holds: [{ id: 1, reason: "because", untilMs: 2 ** 41 }],
    wakeAtMs: null,
    waitDueMs: null,
    asleepBecause: "idle",
    quarantine: null,
    head: null,
    lease: null,
    disk: [],
    failure: { reason: "crashed", message: "Größe “x” \u{1f600}", wayBack: "recover", atMs: 1 },
    report: null,
    storedBytes: 2 ** 40 + 1,
    resetsAtMs: [],
    createdAtMs: 1_700_000_000_000,
    changedAtMs: 1_700_000_000_001,
    ...part,
  };
}

export const sampleLease: NonNullable<Agent["lease"]> = {
  machine: {
    id: makeId("vm", 1_700_000_000_000, unique()),
    pid: 4711,
    startTicks: 12,
    hostBootId: "boot",
    runDir: "/run/vm",
    uid: 200_001,
  },
  route: "wake",
  lowerLayers: [],
  topLayer: makeId("dl", 1_700_000_000_000, unique()),
  base: { kind: "zero", digest: null },
  letOut: true,
  fallback: "asleep",
};

export function sampleCheckpoint(agent: AgentId, part: Partial<CheckpointRow> = {}): CheckpointRow {
  return {
    id: makeId("cp", 1_700_000_000_000, unique()),
    agent,
    kind: "sleep",
    name: null,
    generation: 3,
    createdAtMs: 1_700_000_000_000,
    parent: null,
    digest: "c".repeat(64) as Digest,
    memory: true,
    frozen: true,
    cleanliness: "clean",
    layers: [],
    addedBytes: 4096,
    pauseMs: 12.5,
    ...part,
  };
}
