import { expect, test } from "vitest";
import { egressLimits, makeId, type AgentId } from "@perdure/protocol";
import { createMemoryStateStore } from "../../../../test/contract/memory-state-store.ts";
import { sampleEnd, sampleStart } from "../../../../test/simulation/fake-egress.ts";
import { createSystemClock } from "../clock.ts";
import { ConnectionLog } from "./connection-log.ts";
import type { StateChange } from "./ports/state-store.ts";

const agent = makeId("ag", 1, new Uint8Array(10));

/** A log over a store whose commits wait for `go`, where it is given. */
function openLog(go?: () => Promise<void>) {
  const state = createMemoryStateStore();
  const commits: (readonly StateChange[])[] = [];
  const clock = createSystemClock();
  const complaints: string[] = [];
  const log = new ConnectionLog({
    state: {
      ...state,
      commit: async (changes) => {
        commits.push(changes);
        await go?.();
        await state.commit(changes);
      },
    },
    clock,
    log: (_, message) => complaints.push(message),
  });
  const count = async (of: AgentId): Promise<number> =>
    (await state.connectionPage({ agent: of, after: 0, limit: 100_000 })).length;
  return { log, commits, complaints, count, teller: log.teller(agent, 1, () => undefined) };
}

test("what comes while one transaction is written shares the next", async () => {
  const gate = Promise.withResolvers<undefined>();
  const { teller, commits, count, log } = openLog(() => gate.promise);
  const first = teller.begun(sampleStart());
  while (commits.length === 0) await Promise.resolve();
  const rest = Array.from({ length: 200 }, () => teller.refused(sampleEnd({ outcome: "denied" })));
  expect(commits).toHaveLength(1);
  gate.resolve(undefined);
  await Promise.all([first, ...rest]);
  expect(commits.length).toBeLessThan(6);
  expect(await count(agent)).toBe(201);
  await log.settled();
});

test("a beginning that cannot be stored rejects, an end that cannot is complained of", async () => {
  let full = true;
  const { teller, complaints } = openLog(() =>
    full ? Promise.reject(new Error("The disk is full")) : Promise.resolve(),
  );
  await expect(teller.begun(sampleStart())).rejects.toThrow("The disk is full");
  full = false;
  const ended = await teller.begun(sampleStart());
  full = true;
  await ended(sampleEnd());
  await teller.refused(sampleEnd({ outcome: "denied" }));
  expect(complaints).toHaveLength(2);
});

test("old ones are forgotten now and then, within the bounds", async () => {
  const { teller, commits, log } = openLog();
  const denied = sampleEnd({ outcome: "denied", unmediated: false });
  for (let i = 0; i < 10; i++) {
    await Promise.all(Array.from({ length: 60 }, () => teller.refused(denied)));
  }
  await log.settled();
  const collected = commits.flat().filter(({ kind }) => kind === "collect-connections");
  const bounds = { agent, countMax: egressLimits.connectionsKeptMax };
  expect(collected).toMatchObject([bounds, bounds]);
});

test("a daemon that stops waits for the ends of its connections", async () => {
  const { teller, log } = openLog();
  const ended = await teller.begun(sampleStart());
  const order: string[] = [];
  const settled = log.settled().then(() => order.push("settled"));
  await new Promise((next) => setImmediate(next));
  await ended(sampleEnd()).then(() => order.push("ended"));
  await settled;
  expect(order).toEqual(["ended", "settled"]);
});
