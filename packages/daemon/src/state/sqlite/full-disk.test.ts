/** The store on a file system of its own that is filled to the last byte: needs root to mount it. */
import { existsSync, rmSync, statfsSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { sampleRequest } from "../../../../../test/contract/state-store-request.ts";
import { sampleAgent, sampleCheckpoint } from "../../../../../test/contract/state-store-sample.ts";
import { SmallDisk } from "../../../../../test/fixtures/small-disk.ts";
import type { Agent } from "../../core/agent.ts";
import type { StateStore } from "../../core/ports/state-store.ts";
import { BALLAST_BYTES, BALLAST_NEEDS_BYTES } from "./ballast.ts";
import { openSqliteStateStore } from "./sqlite-state-store.ts";

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("The store on a full disk is skipped: mounting a file system needs root");

describe.skipIf(!isRoot).each(["tmpfs", "ext4"] as const)("on a full %s", (type) => {
  let disk: SmallDisk;
  let path: string;
  let store: StateStore;
  /** What the store told about its reserve. */
  let told: boolean[];

  beforeEach(async () => {
    disk = new SmallDisk("perdure-full-store");
    path = join(disk.mount, "state.db");
    disk.mountAs(type, 64 * 1024 * 1024);
    await open();
  });
  afterEach(async () => {
    await store.close();
    disk.unmount();
  });

  async function open(): Promise<void> {
    store = await openSqliteStateStore({ path });
    told = [];
    store.onReserve?.((held) => told.push(held));
    // The first answer comes after the ballast was made, or could not be.
    await store.allAgents();
  }

  async function insert(...agents: Agent[]): Promise<void> {
    await store.commit(agents.map((agent) => ({ kind: "insert-agent", agent })));
  }

  async function change(agent: Agent, part: Partial<Agent>): Promise<Agent> {
    const changed = { ...agent, ...part, revision: agent.revision + 1 };
    await store.commit([
      { kind: "update-agent", agent: changed, expectedRevision: agent.revision },
    ]);
    return changed;
  }

  it("holds a ballast that is really allocated, and only its owner may read", () => {
    const { size, blocks, mode } = statSync(`${path}.ballast`);
    expect([size, blocks * 512 >= size, mode & 0o777]).toEqual([BALLAST_BYTES, true, 0o600]);
    expect(told).toEqual([]);
  });

  it("stores what becomes of agents, whoever takes each free byte, and refuses new ones", async () => {
    let agent = sampleAgent("a1", { state: "awake" });
    const other = sampleAgent("a2");
    await insert(agent, other);
    disk.fill();
    // Far more than one round of the log between two checkpoints of SQLite.
    for (let i = 0; i < 1000; i++) {
      agent = await change(agent, { paused: i % 2 === 0 ? "disk full" : null });
      if (i % 10 === 0) disk.fill();
    }
    const checkpoint = sampleCheckpoint(agent.id);
    await store.commit([{ kind: "insert-checkpoint", checkpoint }]);
    await change(other, { state: "removed" });
    await store.commit([{ kind: "delete-agent", id: other.id }]);
    expect(told).toEqual([false]);
    expect(existsSync(`${path}.ballast`)).toBe(false);

    await expect(insert(sampleAgent("new"))).rejects.toMatchObject({
      code: "disk_full",
      hint: expect.stringContaining(disk.mount) as string,
      details: { needBytes: BALLAST_NEEDS_BYTES },
    });
    await store.close();
    await open();
    expect(await store.agent(agent.id)).toEqual(agent);
    expect(await store.agent(other.id)).toBeNull();
    expect(await store.checkpoint(checkpoint.id)).toEqual(checkpoint);
  });

  it("keeps its ballast for those: a create that finds no room does not use it up", async () => {
    disk.fill();
    const agents = Array.from({ length: 300 }, (_, i) => sampleAgent(`a${i}`));
    const outcomes = await Promise.allSettled(agents.map((agent) => insert(agent)));
    const refused = outcomes.filter(({ status }) => status === "rejected");
    expect(refused.length).toBeGreaterThan(0);
    for (const each of refused) expect(each).toMatchObject({ reason: { code: "disk_full" } });
    expect(existsSync(`${path}.ballast`)).toBe(true);
    expect(told).toEqual([]);
  });

  it("keeps its ballast from what is kept of requests, and refuses that while it is gone", async () => {
    let agent = sampleAgent("a1");
    await insert(agent);
    disk.fill();
    const keep = (i: number): Promise<void> => {
      const answer = { status: 200, body: "x".repeat(4000) };
      const request = sampleRequest(`k${i}`, { answer });
      return store.commit([{ kind: "insert-request", request, sinceMs: 0 }]);
    };
    const kept = await Promise.allSettled(Array.from({ length: 500 }, (_, i) => keep(i)));
    const refused = kept.filter(({ status }) => status === "rejected");
    expect(refused.length).toBeGreaterThan(0);
    for (const each of refused) expect(each).toMatchObject({ reason: { code: "disk_full" } });
    expect(told).toEqual([]);
    while (told.length === 0) agent = await change(agent, { paused: null });
    await expect(keep(1000)).rejects.toMatchObject({ code: "disk_full" });
    await change(agent, { state: "removed" });
  });

  it("makes the ballast again when there is room, at the latest for a new agent", async () => {
    let agent = sampleAgent("a1");
    await insert(agent);
    disk.fill();
    while (told.length === 0) agent = await change(agent, { paused: null });
    rmSync(disk.filler);
    await insert(sampleAgent("new"));
    expect(told).toEqual([false, true]);
    expect(statSync(`${path}.ballast`).size).toBe(BALLAST_BYTES);
  });

  it("makes it again by itself", async () => {
    let agent = sampleAgent("a1");
    await insert(agent);
    disk.fill();
    while (told.length === 0) agent = await change(agent, { paused: null });
    rmSync(disk.filler);
    await expect.poll(() => told).toEqual([false, true]);
  });

  it("opens without a ballast, says so, and has room for what becomes of agents all the same", async () => {
    let agent = sampleAgent("a1");
    await insert(agent);
    await store.close();
    rmSync(`${path}.ballast`);
    const { bavail, bsize } = statfsSync(disk.mount);
    writeFileSync(disk.filler, Buffer.alloc(bavail * bsize - BALLAST_BYTES, 1));
    await open();
    expect(told).toEqual([false]);
    disk.fill();
    for (let i = 0; i < 50; i++) agent = await change(agent, { paused: null });
    await expect(insert(sampleAgent("new"))).rejects.toMatchObject({ code: "disk_full" });
    await change(agent, { state: "removed" });
  });
});
