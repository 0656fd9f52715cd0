/** The part of the StateStore suite about connections to elsewhere. */
import { expect, it } from "vitest";
import { makeId, type AgentId } from "@perdure/protocol";
import type { ConnectionRow } from "../../packages/daemon/src/core/connection.ts";
import type { StateStore } from "../../packages/daemon/src/core/ports/state-store.ts";
import { sampleAgent } from "./state-store-sample.ts";

let serial = 0;

function sampleConnection(agent: AgentId, part: Partial<ConnectionRow> = {}): ConnectionRow {
  const random = new Uint8Array(10);
  new DataView(random.buffer).setUint32(6, ++serial);
  return {
    id: makeId("cn", 1_700_000_000_000, random),
    agent,
    generation: 3,
    atMs: 1_700_000_000_000,
    endedAtMs: 1_700_000_000_100,
    name: "api.example.com",
    address: "192.0.2.1",
    port: 443,
    method: null,
    outcome: "carried",
    rule: 0,
    unmediated: true,
    outBytes: 2 ** 40,
    inBytes: 1,
    why: "Größe “x”",
    ...part,
  };
}

export function connectionContract(store: () => StateStore): void {
  const insert = (...rows: ConnectionRow[]): Promise<void> =>
    store().commit(rows.map((connection) => ({ kind: "insert-connection", connection })));
  const page = async (agent: AgentId, after = 0, limit = 100): Promise<ConnectionRow[]> =>
    (await store().connectionPage({ agent, after, limit })).map(({ row }) => row);
  const stored = async (): Promise<AgentId> => {
    const agent = sampleAgent(`c${++serial}`);
    await store().commit([{ kind: "insert-agent", agent }]);
    return agent.id;
  };
  const open = { endedAtMs: null, outcome: "open" } as const;

  it("gives back connections as they were stored, page by page, and takes their ends", async () => {
    const [one, two] = [await stored(), await stored()];
    const rows = [1, 2, 3].map(() => sampleConnection(one, open));
    await insert(...rows, sampleConnection(two));
    expect(await page(one)).toEqual(rows);
    const [first] = await store().connectionPage({ agent: one, after: 0, limit: 1 });
    expect(await page(one, first?.place, 1)).toEqual(rows.slice(1, 2));
    const ended = { ...rows[0], ...sampleConnection(one), id: rows[0]?.id } as ConnectionRow;
    await store().commit([{ kind: "update-connection", connection: ended }]);
    expect(await page(one)).toEqual([ended, ...rows.slice(1)]);
    expect(await store().connectionPage({ agent: one, after: 0, limit: 1 })).toEqual([
      { row: ended, place: first?.place },
    ]);
  });

  it("counts what is unmediated and open, or ended after a moment", async () => {
    const agent = await stored();
    const none = { count: 0, last: null };
    expect(await store().unmediatedSince(agent, 0)).toEqual(none);
    const isOpen = sampleConnection(agent, open);
    await insert(
      isOpen,
      sampleConnection(agent),
      sampleConnection(agent, { unmediated: false, outcome: "denied" }),
      sampleConnection(await stored(), open),
    );
    const after = await store().unmediatedSince(agent, 1_700_000_000_100);
    expect(after).toEqual({ count: 1, last: isOpen });
    expect((await store().unmediatedSince(agent, 1_700_000_000_099)).count).toBe(2);
  });

  it("loses those that are open, and forgets those of agents that are gone", async () => {
    const [agent, gone] = [await stored(), await stored()];
    const ended = sampleConnection(agent);
    await insert(sampleConnection(agent, open), ended, sampleConnection(gone));
    await store().commit([{ kind: "delete-agent", id: gone }]);
    expect(await page(gone)).toEqual([]);
    await insert(sampleConnection(gone));
    await store().commit([{ kind: "lose-connections", atMs: 5 }]);
    expect(await page(agent)).toMatchObject([{ outcome: "lost", endedAtMs: 5 }, ended]);
    expect(await page(gone)).toEqual([]);
    expect((await store().unmediatedSince(agent, 4)).count).toBe(2);
  });

  it("forgets the old and the oldest, of what was carried and what was not each", async () => {
    const agent = await stored();
    const old = sampleConnection(agent, { endedAtMs: 10 });
    const kept = [1, 2].map(() => sampleConnection(agent));
    const denied = [1, 2, 3, 4].map(() => sampleConnection(agent, { unmediated: false }));
    const isOpen = sampleConnection(agent, open);
    await insert(isOpen, old, ...kept, ...denied);
    const bounds = { agent, sinceMs: 11, countMax: 2 };
    await store().commit([{ kind: "collect-connections", ...bounds }]);
    expect(await page(agent)).toEqual([isOpen, ...kept, ...denied.slice(2)]);
  });
}
