/** The engine's hold on its agents: one actor while it is needed, none when it is not, one lane always. */
import { beforeEach, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { count, create, exec, verb } from "../../../../test/simulation/scene.ts";
import { RAISES_AT_ONCE, World } from "../../../../test/simulation/world.ts";

let world: World;
/** How often an agent was loaded from the state store by its id: each time it had no actor. */
let loads: number;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  loads = 0;
  world.faults.onPoint = (name) => {
    if (name === "state.agent") loads++;
    return null;
  };
});

test("an awake agent keeps its actor, a sleeping one that nobody asks has none", async () => {
  for (let i = 0; i < 5; i++) await count(world, "a1");
  expect(loads).toBe(0);
  await world.execute(verb("sleep", "a1"));
  expect(loads).toBe(0);
  for (let i = 1; i <= 5; i++) {
    await world.execute(verb("sleep", "a1"));
    expect(loads).toBe(i);
  }
});

test("callers at once share one actor, also where it has just been let go of", async () => {
  await world.execute(verb("sleep", "a1"));
  for (let round = 1; round <= 20; round++) {
    const answers = await world.run(
      Promise.allSettled([
        world.engine.execute(verb("wake", "a1")),
        world.engine.execute(exec("a1", "count", "1")),
        world.engine.execute(verb("sleep", "a1")),
        world.engine.execute(exec("a1", "count", "1")),
      ]),
    );
    // The sleep has a call behind it, which cancels it.
    expect(answers.map(({ status }) => status)).toEqual([
      "fulfilled",
      "fulfilled",
      "rejected",
      "fulfilled",
    ]);
    expect(answers[2]).toMatchObject({ reason: { code: "sleep_cancelled" } });
    await world.execute(verb("sleep", "a1"));
  }
  await world.execute(verb("wake", "a1"));
  expect((await world.guest("a1")).memory.counter).toBe(40);
  await world.time.flush();
  expect(await violationsOf(world)).toEqual([]);
});

test("an agent that cannot be loaded leaves nothing behind that would answer for it", async () => {
  await world.execute(verb("sleep", "a1"));
  world.faults.fail("state.agent", "store_failed", { times: 1 });
  world.faults.onPoint = null;
  await expect(world.execute(verb("wake", "a1"))).rejects.toMatchObject({ code: "store_failed" });
  expect(await world.execute(verb("wake", "a1"))).toMatchObject({ agent: { state: "awake" } });
});

test("many that are raised at once take turns, and all come up", async () => {
  let raised = 0;
  let most = 0;
  world.atStep = (step) => {
    if (step === "create.claimed") most = Math.max(most, ++raised);
    if (step === "create.thawed") raised--;
    return null;
  };
  const names = Array.from({ length: 8 }, (_, i) => `many-${i}`);
  const made = await world.run(
    Promise.all(names.map((name) => world.engine.execute(create(name)))),
  );
  expect(made.map(({ state }) => state)).toEqual(names.map(() => "awake"));
  expect(most).toBe(RAISES_AT_ONCE);
  expect(raised).toBe(0);
});

test("after close nothing is taken on, and the next daemon finds every machine running", async () => {
  await count(world, "a1", 3);
  await world.close();
  await expect(world.execute(verb("sleep", "a1"))).rejects.toMatchObject({
    code: "daemon_unreachable",
  });
  expect((await world.process("a1")).running).toBe(true);
  await world.restart();
  expect(await count(world, "a1")).toBe(4);
  expect((await world.agent("a1")).generation).toBe(1);
  await world.time.flush();
  expect(await violationsOf(world)).toEqual([]);
});
