/** The way out: open before the thaw on every route, under the policy of now; what was carried is told. */
import { beforeEach, describe, expect, test } from "vitest";
import { closedEgress, type EgressPolicy, type WakeReport } from "@perdure/protocol";
import { sampleEnd, sampleStart } from "../../../../test/simulation/fake-egress.ts";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { create, fork, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

const target = { tenant: "default", agent: "a1" };
const open: EgressPolicy = {
  rules: [{ action: "allow", to: "api.example.com" }],
  otherwise: "deny",
};

let world: World;
beforeEach(() => {
  world = new World();
});

const setEgress = (policy: EgressPolicy) =>
  world.execute({ kind: "set-egress", ...target, policy });
/** What the newest way out was opened under. */
function newest() {
  const served = world.egress.served.at(-1);
  if (served === undefined) throw new Error("No way out was served");
  return served;
}
const report = (agent = "a1"): Promise<WakeReport | null> =>
  world.run(world.engine.report({ ...target, agent }));
async function check(name: string, agent = "a1") {
  return (await report(agent))?.checks.find((one) => one.check === name);
}
const connections = async () => (await world.run(world.engine.connections(target))).connections;

describe("policies", () => {
  test("absent is closed, and what create says holds from the first moment", async () => {
    await world.execute(create("a1"));
    expect(newest().policies).toEqual([closedEgress]);
    expect(await check("egress")).toMatchObject({ outcome: "passed", detail: "Nothing gets out." });
    await world.execute({ ...create("a2"), egress: open });
    expect(newest().policies).toEqual([open]);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a change holds at once, and on every route after it", async () => {
    await world.execute(create("a1"));
    const { id } = await world.execute({ kind: "checkpoint", ...target, name: "c1" });
    expect(await setEgress(open)).toMatchObject({ ...open, wayOut: "open" });
    expect(newest().policies).toEqual([closedEgress, open]);
    await world.execute(verb("sleep", "a1"));
    expect(await world.run(world.engine.egress(target))).toMatchObject({ ...open, wayOut: null });
    await world.execute(verb("wake", "a1"));
    expect(newest().policies).toEqual([open]);
    await world.execute({ kind: "restore", ...target, checkpoint: id });
    expect(newest().policies).toEqual([open]);
    expect(world.egress.served).toHaveLength(3);
    await world.execute(verb("stop", "a1"));
    await setEgress(closedEgress);
    await world.execute(verb("start", "a1"));
    expect(newest().policies).toEqual([closedEgress]);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a fork has the one that it is given, never its origin's", async () => {
    await world.execute({ ...create("a1"), egress: open });
    await world.execute(fork("a1", "f1"));
    expect(newest().policies).toEqual([closedEgress]);
    await world.execute({ ...fork("a1", "f2"), egress: open });
    expect(newest().policies).toEqual([open]);
  });

  test("I4 a daemon that takes over opens the way out before it thaws", async () => {
    await world.execute({ ...create("a1"), egress: open });
    await world.restart();
    expect(world.egress.served).toHaveLength(2);
    expect(newest().policies).toEqual([open]);
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a guest agent of before has none, which is said where anything was to get out", async () => {
    world.lacksWayOut = true;
    await world.execute(create("a1"));
    expect(await check("egress")).toMatchObject({ outcome: "not-applicable" });
    expect(await setEgress(open)).toMatchObject({ wayOut: "none" });
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await check("egress")).toMatchObject({ outcome: "notice" });
    expect(world.egress.served).toEqual([]);
  });
});

describe("connections", () => {
  beforeEach(async () => {
    await world.execute({ ...create("a1"), egress: open });
  });

  test("are stored when they begin, and again when they are over", async () => {
    const { generation, id: agent } = await world.agent("a1");
    const ended = await world.run(newest().teller.begun(sampleStart()));
    expect(await connections()).toMatchObject([{ generation, outcome: "open", endedAtMs: null }]);
    await world.run(ended(sampleEnd({ why: "reset" })));
    expect(await connections()).toMatchObject([
      { name: "api.example.com", outcome: "carried", outBytes: 5, inBytes: 7, why: "reset" },
    ]);
    expect((await connections())[0]).not.toHaveProperty("agent", agent);
  });

  test("that were open when the daemon died are lost", async () => {
    await world.run(newest().teller.begun(sampleStart()));
    await world.restart();
    expect(await connections()).toMatchObject([{ outcome: "lost" }]);
    expect((await connections())[0]?.endedAtMs).not.toBeNull();
  });

  test("I11 a restore to before them, and a fork, say so; a plain wake need not", async () => {
    const { id } = await world.execute({ kind: "checkpoint", ...target, name: "c1" });
    await world.time.advance(1_000);
    const atMs = world.time.nowMs;
    const ended = await world.run(newest().teller.begun(sampleStart({ atMs })));
    await world.run(ended(sampleEnd({ atMs, name: null, address: "2001:db8::1" })));
    await world.run(newest().teller.refused(sampleEnd({ outcome: "denied", unmediated: false })));
    await world.execute(verb("sleep", "a1"));
    await world.execute(verb("wake", "a1"));
    expect(await check("connections")).toBeUndefined();
    await world.execute({ ...fork("a1", "f1"), checkpoint: id });
    expect(await check("connections", "f1")).toMatchObject({ outcome: "notice" });
    await world.execute({ kind: "restore", ...target, checkpoint: id });
    const found = await check("connections");
    expect(found).toMatchObject({ outcome: "notice" });
    expect(found?.detail).toContain("1 connection out since the cut");
    expect(found?.detail).toContain("[2001:db8::1]:443");
    expect((await report())?.verdict).toBe("continue-with-notices");
  });

  test("keep the agent awake while bytes pass, and not while none do", async () => {
    await world.execute({ kind: "configure", ...target, idleAfterMs: 60_000 });
    for (let i = 0; i < 5; i++) {
      await world.time.advance(40_000);
      newest().teller.passed();
    }
    expect((await world.agent("a1")).state).toBe("awake");
    await world.time.advance(100_000);
    expect((await world.agent("a1")).state).toBe("asleep");
  });

  test("are forgotten with the agent", async () => {
    const { id } = await world.agent("a1");
    await world.run(newest().teller.begun(sampleStart()));
    await world.execute(verb("remove", "a1"));
    expect(await world.state.connectionPage({ agent: id, after: 0, limit: 9 })).toEqual([]);
  });
});
