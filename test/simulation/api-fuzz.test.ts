/**
 * Requests of any kind, many at once, against the real API server and engine on the simulated world: valid,
 * nearly valid, broken, given up. PERDURE_FUZZ_REQUESTS sets how many (1,000; 10,000 beyond tier test),
 * PERDURE_SEED what is drawn; how requests interleave is not drawn.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { expect, test } from "vitest";
import { ApiWorld } from "./api-fuzz/api-world.ts";
import { drawnRequest } from "./api-fuzz/drawn-request.ts";
import { sendDrawn } from "./api-fuzz/sender.ts";
import { expectWhole } from "./invariant.ts";

const tier = process.env["PERDURE_TIER"] ?? "test";
const count = Number(process.env["PERDURE_FUZZ_REQUESTS"] ?? (tier === "test" ? 1_000 : 10_000));
const seed = Number(process.env["PERDURE_SEED"] ?? Date.now() % 1_000_000);
const AT_ONCE_MAX = 12;
/** What the second half of the requests may leave behind, however many they are. */
const GROWTH_BYTES_MAX = 48 * 1024 * 1024;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

test(`${count} random requests leave the daemon healthy (PERDURE_SEED=${seed})`, async () => {
  console.error(`api fuzz: PERDURE_SEED=${seed}`);
  const api = await ApiWorld.open(seed);
  const requests = fc.sample(drawnRequest, { seed, numRuns: count });
  const found: string[] = [];
  let next = 0;
  const lane = async (until: number): Promise<void> => {
    while (next < until && found.length < 5) {
      const at = next++;
      const request = requests[at];
      if (request === undefined) return;
      for (const words of await sendDrawn(api, request)) found.push(`request ${at}: ${words}`);
    }
  };
  const half = async (until: number): Promise<number> => {
    // From one caller at a time to many.
    for (let lanes = 1; next < until && found.length < 5; lanes = (lanes % AT_ONCE_MAX) + 1) {
      const some = Math.min(until, next + 10 * lanes);
      await Promise.all(Array.from({ length: lanes }, () => lane(some)));
    }
    expect([...found, ...api.defects]).toEqual([]);
    await removeAll(api);
    collect();
    return process.memoryUsage().heapUsed;
  };
  try {
    await half(count / 10);
    const handles = handleCounts();
    const before = await half((count * 11) / 20);
    const after = await half(count);
    expect((await api.client.send("GET", "/v1/health")).status).toBe(200);
    expect((await api.client.send("GET", "/v1/agents")).json()).toEqual({ agents: [], next: null });
    expect(after - before).toBeLessThan(GROWTH_BYTES_MAX);
    await expect.poll(handleCounts).toEqual(handles);
    const made = await api.client.post("/v1/agents", { name: "after" });
    expect(made.json()).toMatchObject({ state: "awake" });
  } finally {
    await api.close();
  }
  await expectWhole(api.world);
  // Its guests have no statistics, which is a warning for agents of a real size.
  const complaints = api.world.complaints.filter((each) => !each.includes("has no statistics"));
  expect(complaints).toEqual([]);
}, 900_000);

/** Also shows that every agent can still be removed, whatever was done to it. */
async function removeAll(api: ApiWorld): Promise<void> {
  for (;;) {
    const page = (await api.client.send("GET", "/v1/agents?limit=1000")).json() as {
      agents: { id: string }[];
    };
    if (page.agents.length === 0) return;
    for (const { id } of page.agents) {
      const { status } = await api.client.send("DELETE", `/v1/agents/${id}`);
      expect([200, 404]).toContain(status);
    }
  }
}

/** Open sockets and pipes by kind; timers come and go. */
function handleCounts(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) {
    if (!kind.includes("Wrap")) continue;
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return counts;
}
