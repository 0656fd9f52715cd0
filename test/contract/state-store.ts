/**
 * The suite of port StateStore (packages/daemon/src/core/ports/state-store.ts): it holds for every
 * implementation. Call it from a test file with a way to open an empty store.
 */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Agent } from "../../packages/daemon/src/core/agent.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";
import { connectionContract } from "./state-store-connection.ts";
import { eventContract } from "./state-store-event.ts";
import { keyContract } from "./state-store-key.ts";
import { requestContract } from "./state-store-request.ts";
import { sampleAgent, sampleCheckpoint, sampleLease } from "./state-store-sample.ts";

export function stateStoreContract(
  implementation: string,
  open: () => Promise<{ store: StateStore; dispose: () => Promise<void> }>,
): void {
  describe(`StateStore: ${implementation}`, () => {
    let store: StateStore;
    let dispose: () => Promise<void>;
    beforeEach(async () => {
      ({ store, dispose } = await open());
    });
    afterEach(() => dispose());

    const insert = async (...agents: Agent[]): Promise<void> => {
      await store.commit(agents.map((agent) => ({ kind: "insert-agent", agent })));
    };
    const names = async (query: Partial<Parameters<StateStore["listAgents"]>[0]>) =>
      (await store.listAgents({ tenant: "default", limit: 100, ...query })).map(({ name }) => name);

    it("gives back an agent exactly as it was stored", async () => {
      const agent = sampleAgent("a1");
      await insert(agent);
      expect(await store.agent(agent.id)).toEqual(agent);
      expect(await store.agentByName("default", "a1")).toEqual(agent);
    });

    it("answers null for what it does not hold", async () => {
      expect(await store.agent(sampleAgent("x").id)).toBeNull();
      expect(await store.agentByName("default", "x")).toBeNull();
      expect(await store.checkpoint(sampleCheckpoint(sampleAgent("x").id).id)).toBeNull();
      expect(await store.checkpoints(sampleAgent("x").id)).toEqual([]);
      expect(await names({})).toEqual([]);
      expect(await store.allAgents()).toEqual([]);
    });

    it("refuses a second living agent of the same name and tenant", async () => {
      await insert(sampleAgent("a1"));
      await expect(insert(sampleAgent("a1"))).rejects.toMatchObject({ code: "agent_exists" });
      await insert(sampleAgent("a1", { tenant: "other" }));
    });

    it("frees the name of an agent that was removed, which stays readable by id", async () => {
      const old = sampleAgent("a1");
      await insert(old);
      const removed: Agent = { ...old, state: "removed", revision: 1 };
      await store.commit([{ kind: "update-agent", agent: removed, expectedRevision: 0 }]);
      expect(await store.agentByName("default", "a1")).toBeNull();
      const young = sampleAgent("a1");
      await insert(young);
      expect(await store.agent(old.id)).toEqual(removed);
      expect(await store.agentByName("default", "a1")).toEqual(young);
      expect(await names({})).toEqual(["a1"]);
      expect(await names({ state: "removed" })).toEqual([]);
      expect((await store.allAgents()).map(({ id }) => id).sort()).toEqual(
        [old.id, young.id].sort(),
      );
    });

    it("refuses a removed agent's return where the name is taken again", async () => {
      const old = sampleAgent("a1", { state: "removed" });
      await insert(old, sampleAgent("a1"));
      const back: Agent = { ...old, state: "asleep", revision: 1 };
      await expect(
        store.commit([{ kind: "update-agent", agent: back, expectedRevision: 0 }]),
      ).rejects.toMatchObject({ code: "agent_exists" });
    });

    it("lets one of two updates of the same revision win", async () => {
      const agent = sampleAgent("a1");
      await insert(agent);
      const outcomes = await Promise.allSettled(
        ["first", "second"].map((paused) =>
          store.commit([
            { kind: "update-agent", agent: { ...agent, paused, revision: 1 }, expectedRevision: 0 },
          ]),
        ),
      );
      expect(outcomes.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
      const lost = outcomes.find((outcome) => outcome.status === "rejected");
      expect(lost?.reason).toMatchObject({ code: "store_failed" });
      expect((await store.agent(agent.id))?.revision).toBe(1);
    });

    it("refuses an update of an agent it does not hold, and one that skips a revision", async () => {
      const agent = sampleAgent("a1");
      await expect(
        store.commit([
          { kind: "update-agent", agent: { ...agent, revision: 1 }, expectedRevision: 0 },
        ]),
      ).rejects.toMatchObject({ code: "store_failed" });
      await insert(agent);
      await expect(
        store.commit([
          { kind: "update-agent", agent: { ...agent, revision: 2 }, expectedRevision: 0 },
        ]),
      ).rejects.toMatchObject({ code: "store_failed" });
      expect(await store.agent(agent.id)).toEqual(agent);
    });

    it("keeps all changes of a commit or none", async () => {
      const agent = sampleAgent("a1");
      const checkpoint = sampleCheckpoint(agent.id);
      await insert(agent);
      await expect(
        store.commit([
          { kind: "insert-checkpoint", checkpoint },
          { kind: "update-agent", agent: { ...agent, revision: 8 }, expectedRevision: 7 },
        ]),
      ).rejects.toMatchObject({ code: "store_failed" });
      expect(await store.checkpoint(checkpoint.id)).toBeNull();
      await store.commit([
        { kind: "insert-checkpoint", checkpoint },
        { kind: "update-agent", agent: { ...agent, revision: 1 }, expectedRevision: 0 },
      ]);
      expect(await store.checkpoint(checkpoint.id)).toEqual(checkpoint);
      expect((await store.agent(agent.id))?.revision).toBe(1);
    });

    it("lets a failing commit among many at once fail alone", async () => {
      const agents = Array.from({ length: 60 }, (_, i) => sampleAgent(`n${i % 50}`));
      const outcomes = await Promise.allSettled(agents.map((agent) => insert(agent)));
      expect(outcomes.slice(0, 50).every(({ status }) => status === "fulfilled")).toBe(true);
      for (const outcome of outcomes.slice(50)) {
        expect(outcome).toMatchObject({ status: "rejected", reason: { code: "agent_exists" } });
      }
      expect(await store.allAgents()).toHaveLength(50);
    });

    it("shows a commit to every read that begins after it", async () => {
      for (let i = 0; i < 20; i++) {
        const agent = sampleAgent(`n${i}`);
        await insert(agent);
        expect(await store.agent(agent.id)).toEqual(agent);
      }
    });

    it("finds what a daemon that starts has to settle, and nothing else", async () => {
      const settled = (["asleep", "stopped", "quarantined", "failed"] as const).map((state) =>
        sampleAgent(state, { state, lease: null }),
      );
      const states = [
        "creating",
        "awake",
        "falling-asleep",
        "waking",
        "stopping",
        "removed",
      ] as const;
      const unsettled = [
        ...states.map((state) => sampleAgent(state, { state, lease: null })),
        sampleAgent("leased", { state: "failed", lease: sampleLease }),
      ];
      await insert(...settled, ...unsettled);
      const found = (await store.unsettledAgents()).map(({ id }) => id);
      expect(found.toSorted()).toEqual(unsettled.map(({ id }) => id).toSorted());
    });

    it("tells the sleeping agents that changed last, newest first", async () => {
      const at = (name: string, changedAtMs: number, state: Agent["state"] = "asleep"): Agent =>
        sampleAgent(name, { state, changedAtMs });
      await insert(at("old", 9), at("newest", 1_700_000_000_002), at("newer", 1_700_000_000_001));
      await insert(at("awake", 1_700_000_000_003, "awake"));
      const found = async (limit: number): Promise<string[]> =>
        (await store.lastAsleep(limit)).map(({ name }) => name);
      expect(await found(2)).toEqual(["newest", "newer"]);
      expect(await found(9)).toEqual(["newest", "newer", "old"]);
    });

    it("tells the ids of all agents, page by page", async () => {
      const agents = ["a", "b", "c"].map((name) => sampleAgent(name));
      await insert(...agents, sampleAgent("d", { state: "removed" }));
      const [first, ...rest] = (await store.allAgents()).map(({ id }) => id).toSorted();
      expect(rest).toHaveLength(3);
      expect(await store.agentIds(null, 1)).toEqual([first]);
      expect(await store.agentIds(first ?? null, 9)).toEqual(rest);
      expect(await store.agentIds(rest.at(-1) ?? null, 9)).toEqual([]);
    });

    it("lists by name, within a tenant, by prefix and state, page by page", async () => {
      const all = ["web", "web-1", "web-10", "web-2", "we", "x", "a-web"];
      await insert(
        ...all.map((name) => sampleAgent(name, { state: name.endsWith("1") ? "awake" : "asleep" })),
        sampleAgent("web-9", { tenant: "other" }),
        sampleAgent("web-8", { state: "removed" }),
      );
      expect(await names({})).toEqual([...all].sort());
      expect(await names({ prefix: "web" })).toEqual(["web", "web-1", "web-10", "web-2"]);
      expect(await names({ prefix: "web-1" })).toEqual(["web-1", "web-10"]);
      expect(await names({ prefix: "web", state: "awake" })).toEqual(["web-1"]);
      expect(await names({ prefix: "web", after: "web-1" })).toEqual(["web-10", "web-2"]);
      expect(await names({ prefix: "web", after: "a" })).toHaveLength(4);
      expect(await names({ prefix: "web", after: "x" })).toEqual([]);
      expect(await names({ after: "web", limit: 2 })).toEqual(["web-1", "web-10"]);
      expect(await names({ prefix: "we%" })).toEqual([]);
      expect(await names({ tenant: "other" })).toEqual(["web-9"]);
    });

    it("lists by age and by labels, either way, page by page", async () => {
      const all = [
        sampleAgent("c", { labels: { team: "red", "a.b": "1" } }),
        sampleAgent("b", { labels: { team: "red" } }),
        sampleAgent("a"),
        sampleAgent("d", { labels: { team: "blue", $: "red" } }),
      ];
      await insert(...all.toReversed(), sampleAgent("e", { tenant: "other" }));
      await insert(sampleAgent("f", { state: "removed" }));
      const ages = async (
        wanted: Partial<Parameters<StateStore["agentsByAge"]>[0]>,
      ): Promise<string[]> => {
        const query = { tenant: "default", label: {}, after: null, limit: 100 };
        const found = await store.agentsByAge({ ...query, order: "oldest-first", ...wanted });
        return found.map(({ name }) => name);
      };
      expect(await ages({})).toEqual(["c", "b", "a", "d"]);
      expect(await ages({ order: "newest-first" })).toEqual(["d", "a", "b", "c"]);
      const after = all[2]?.id ?? null;
      expect(await ages({ after })).toEqual(["d"]);
      expect(await ages({ after, order: "newest-first", limit: 1 })).toEqual(["b"]);
      expect(await ages({ label: { team: "red" } })).toEqual(["c", "b"]);
      expect(await ages({ label: { team: "red", "a.b": "1" } })).toEqual(["c"]);
      expect(await ages({ label: { $: "red" } })).toEqual(["d"]);
      expect(await ages({ label: { team: "re" } })).toEqual([]);
      expect(await names({ label: { team: "red" } })).toEqual(["b", "c"]);
      expect(await names({ label: { team: "red" }, state: "awake" })).toEqual([]);
    });

    it("tells what is due first: sleepers that wake, and those that run and have an end", async () => {
      const end = { atMs: 2000, afterMs: 1, then: "sleep" } as const;
      const agents = [
        sampleAgent("sleeper", { wakeAtMs: 3000, end }),
        sampleAgent("runner", { state: "awake", wakeAtMs: 1000, end }),
        sampleAgent("not-begun", { state: "awake", end: { ...end, atMs: null } }),
        sampleAgent("resting", { end }),
        sampleAgent("failed", { state: "failed", end }),
        sampleAgent("ending", { state: "failed", end: { ...end, atMs: 1500, then: "remove" } }),
      ];
      await insert(...agents);
      const ids = new Map(agents.map(({ id, name }) => [id, name]));
      const due = (await store.due(9)).map(({ id, dueMs }) => [ids.get(id), dueMs]);
      expect(due).toEqual([
        ["ending", 1500],
        ["runner", 2000],
        ["sleeper", 3000],
      ]);
      expect(await store.due(1)).toHaveLength(1);
    });

    it("lists an agent's checkpoints in the order they came, and forgets one", async () => {
      const [one, two] = [sampleAgent("a1"), sampleAgent("a2")];
      await insert(one, two);
      const late = sampleCheckpoint(one.id, { createdAtMs: 2000 });
      const early = sampleCheckpoint(one.id, { createdAtMs: 1000, name: "before" });
      for (const checkpoint of [late, sampleCheckpoint(two.id), early]) {
        await store.commit([{ kind: "insert-checkpoint", checkpoint }]);
      }
      expect(await store.checkpoints(one.id)).toEqual([late, early]);
      const named = { ...late, name: "named" };
      await store.commit([{ kind: "update-checkpoint", checkpoint: named }]);
      expect(await store.checkpoints(one.id)).toEqual([named, early]);
      await store.commit([{ kind: "delete-checkpoint", id: late.id }]);
      await store.commit([{ kind: "delete-checkpoint", id: late.id }]);
      expect(await store.checkpoints(one.id)).toEqual([early]);
    });

    it("lists an agent's checkpoints page by page, whatever is forgotten meanwhile", async () => {
      const [one, two] = [sampleAgent("a1"), sampleAgent("a2")];
      await insert(one, two);
      const rows = Array.from({ length: 5 }, () => sampleCheckpoint(one.id));
      for (const checkpoint of rows) {
        await store.commit([{ kind: "insert-checkpoint", checkpoint }]);
        await store.commit([{ kind: "insert-checkpoint", checkpoint: sampleCheckpoint(two.id) }]);
      }
      const page = (after: number) => store.checkpointPage({ agent: one.id, after, limit: 2 });
      const first = await page(0);
      expect(first.map(({ row }) => row)).toEqual(rows.slice(0, 2));
      const [, last] = first;
      await store.commit(
        rows.slice(1, 3).map(({ id }) => ({ kind: "delete-checkpoint" as const, id })),
      );
      const second = await page(last?.place ?? 0);
      expect(second.map(({ row }) => row)).toEqual(rows.slice(3));
      expect(await page(second[1]?.place ?? 0)).toEqual([]);
      expect(second.every(({ place }) => place > (last?.place ?? 0))).toBe(true);
    });

    it("refuses a checkpoint twice, and one of an agent it does not hold", async () => {
      const agent = sampleAgent("a1");
      await insert(agent);
      const checkpoint = sampleCheckpoint(agent.id);
      await store.commit([{ kind: "insert-checkpoint", checkpoint }]);
      const orphan = sampleCheckpoint(sampleAgent("x").id);
      for (const refused of [checkpoint, orphan]) {
        await expect(
          store.commit([{ kind: "insert-checkpoint", checkpoint: refused }]),
        ).rejects.toMatchObject({ code: "store_failed" });
      }
    });

    it("forgets an agent together with its checkpoints, twice without complaint", async () => {
      const agent = sampleAgent("a1", { state: "removed" });
      const checkpoint = sampleCheckpoint(agent.id);
      await store.commit([
        { kind: "insert-agent", agent },
        { kind: "insert-checkpoint", checkpoint },
      ]);
      await store.commit([{ kind: "delete-agent", id: agent.id }]);
      await store.commit([{ kind: "delete-agent", id: agent.id }]);
      expect(await store.agent(agent.id)).toBeNull();
      expect(await store.checkpoint(checkpoint.id)).toBeNull();
      expect(await store.checkpoints(agent.id)).toEqual([]);
    });

    requestContract(() => store);
    eventContract(() => store);
    keyContract(() => store);
    connectionContract(() => store);

    it("does what was asked before close, and refuses what comes after", async () => {
      const agent = sampleAgent("a1");
      const [, closed] = [insert(agent), store.close()];
      await expect(closed).resolves.toBeUndefined();
      await store.close();
      await expect(store.agent(agent.id)).rejects.toMatchObject({ code: "store_failed" });
      await expect(insert(sampleAgent("a2"))).rejects.toMatchObject({ code: "store_failed" });
    });
  });
}
