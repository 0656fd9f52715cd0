/** Several callers at once on one agent: who waits, who is joined, who wins. */
import { PerdureError } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { expectWhole, violationsOf } from "../../../../test/simulation/invariant.ts";
import { checkpoint, count, create, exec, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { steps } from "./step.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
});

const turn = (): Promise<void> => new Promise((resume) => setImmediate(resume));

test("C20 fifty wakes at once make one machine, and all callers get it", async () => {
  await world.execute(verb("sleep", "a1"));
  const startedBefore = world.host.started;
  const answers = await world.run(
    Promise.all(Array.from({ length: 50 }, () => world.engine.execute(verb("wake", "a1")))),
  );
  expect(new Set(answers.map(({ agent }) => agent.generation))).toEqual(new Set([2]));
  expect(new Set(answers.map(({ report }) => report?.generation))).toEqual(new Set([2]));
  // The spare that was ready was used; one came in its place.
  expect(world.host.started - startedBefore).toBe(1);
  await expectWhole(world);
});

test("C20 fifty calls at once wake the agent once, and each is answered", async () => {
  await count(world, "a1", 5);
  await world.execute(verb("sleep", "a1"));
  const answers = await world.run(
    Promise.all(Array.from({ length: 50 }, () => world.engine.execute(exec("a1", "count", "1")))),
  );
  expect(new Set(answers.map(({ generation }) => generation))).toEqual(new Set([2]));
  expect((await world.guest("a1")).memory.counter).toBe(55);
  await expectWhole(world);
});

test("C22 a sleep, a stop and a remove that are under way are joined, not failed", async () => {
  for (const kind of ["sleep", "stop"] as const) {
    const answers = await world.run(
      Promise.all([1, 2, 3].map(() => world.engine.execute(verb(kind, "a1")))),
    );
    expect(answers.map(({ state }) => state)).toEqual(
      Array(3).fill(kind === "sleep" ? "asleep" : "stopped"),
    );
    await expectWhole(world);
  }
  await world.execute(verb("start", "a1"));
  const answers = await world.run(
    Promise.allSettled([1, 2, 3].map(() => world.engine.execute(verb("remove", "a1")))),
  );
  expect(answers[0]).toMatchObject({ status: "fulfilled", value: { state: "removed" } });
  for (const late of answers.slice(1)) {
    expect(late).toMatchObject({ status: "rejected", reason: { code: "agent_not_found" } });
  }
  await expectWhole(world);
});

test("C22 fifty starts at once boot one machine", async () => {
  await world.execute(verb("stop", "a1"));
  const answers = await world.run(
    Promise.all(Array.from({ length: 50 }, () => world.engine.execute(verb("start", "a1")))),
  );
  expect(new Set(answers.map(({ agent }) => agent.generation))).toEqual(new Set([2]));
  await expectWhole(world);
});

test("of creates with one name at once, one makes the agent and the others are refused", async () => {
  const answers = await world.run(
    Promise.allSettled([1, 2, 3, 4].map(() => world.engine.execute(create("a2")))),
  );
  const made = answers.filter(({ status }) => status === "fulfilled");
  expect(made).toHaveLength(1);
  for (const answer of answers) {
    if (answer.status === "rejected") expect(answer.reason).toMatchObject({ code: "agent_exists" });
  }
  await expectWhole(world);
});

test("creates of many agents at once build the template once", async () => {
  const fresh = new World();
  const made = await fresh.run(
    Promise.all(["b1", "b2", "b3"].map((name) => fresh.engine.execute(create(name)))),
  );
  expect(made.map(({ state }) => state)).toEqual(["awake", "awake", "awake"]);
  expect(fresh.templates.size).toBe(1);
  expect(await violationsOf(fresh)).toEqual([]);
});

describe("C29 a call while the agent falls asleep", () => {
  const before = steps.filter(
    (step) => step.startsWith("sleep.") && steps.indexOf(step) < steps.indexOf("sleep.published"),
  );
  const after = ["sleep.published", "sleep.machine-gone", "sleep.collected"] as const;

  async function callAt(at: string) {
    if (at === "sleep.base-written") world.ownBaseAboveBytes = 0;
    await count(world, "a1", 10);
    const calls: Promise<{ generation: number }>[] = [];
    world.duringStep = async (step) => {
      if (step !== at || calls.length > 0) return;
      calls.push(world.engine.execute(exec("a1", "count", "1")));
      for (let i = 0; i < 5; i++) await turn();
    };
    const slept = await world.run(
      world.engine.execute(verb("sleep", "a1")).then(
        ({ state }) => state,
        (error: unknown) => PerdureError.from(error).code,
      ),
    );
    const [answer] = await world.run(Promise.all(calls));
    if (answer === undefined) throw new Error("The step was not reached");
    expect((await world.guest("a1")).memory).toMatchObject({ counter: 11, frozen: false });
    return { slept, generation: answer.generation };
  }

  test.each(before)("at %s cancels the sleep and is answered without a wake", async (step) => {
    expect(await callAt(step)).toEqual({ slept: "sleep_cancelled", generation: 1 });
    await expectWhole(world, { leftovers: true });
  });

  test.each(after)("at %s comes too late to cancel and wakes the agent", async (step) => {
    expect(await callAt(step)).toEqual({ slept: "asleep", generation: 2 });
    await expectWhole(world);
  });

  test("leaves nothing of the checkpoint that was not published", async () => {
    await callAt("sleep.manifest-written");
    await expectWhole(world);
  });
});

describe("verbs that cross", () => {
  test("a remove that comes during a wake wins after it: nothing is left", async () => {
    await world.execute(verb("sleep", "a1"));
    const [woken, removed, late] = await world.run(
      Promise.allSettled([
        world.engine.execute(verb("wake", "a1")),
        world.engine.execute(verb("remove", "a1")),
        world.engine.execute(exec("a1", "count", "1")),
      ]),
    );
    expect(woken).toMatchObject({ status: "fulfilled" });
    expect(removed).toMatchObject({ status: "fulfilled", value: { state: "removed" } });
    expect(late).toMatchObject({ status: "rejected", reason: { code: "agent_not_found" } });
    await expectWhole(world);
  });

  test("a call that is under way is finished before a sleep begins", async () => {
    world.faults.hang("link.exec");
    const call = world.engine.execute(exec("a1", "count", "1"));
    const sleep = world.engine.execute(verb("sleep", "a1"));
    await world.time.flush();
    expect((await world.agent("a1")).state).toBe("awake");
    world.faults.clear();
    expect(await world.run(call)).toMatchObject({ generation: 1 });
    expect(await world.run(sleep)).toMatchObject({ state: "asleep" });
    await expectWhole(world);
  });

  test("C25 reads never wait for the agent's queue, and agree with each other", async () => {
    world.faults.hang("link.freeze");
    const sleep = world.engine.execute(verb("sleep", "a1"));
    await world.time.flush();
    const shown = await world.engine.show({ tenant: "default", agent: "a1" });
    const { agents } = await world.engine.list({ tenant: "default", limit: 10 });
    expect(shown.state).toBe("falling-asleep");
    expect(agents).toEqual([shown]);
    await world.run(sleep);
    const listed = await world.engine.list({ tenant: "default", limit: 10 });
    expect(listed.agents.map(({ state }) => state)).toEqual(["asleep"]);
  });

  test("checkpoints, calls and sleeps in a heap leave one whole agent", async () => {
    const heap = Array.from({ length: 30 }, (_, i) =>
      world.engine.execute(
        i % 5 === 0
          ? verb("sleep", "a1")
          : i % 7 === 0
            ? checkpoint("a1", `c${i}`)
            : exec("a1", "count", "1"),
      ),
    );
    const answers = await world.run(Promise.allSettled(heap));
    const counted = answers.filter(
      (answer) => answer.status === "fulfilled" && "process" in answer.value,
    ).length;
    await world.execute(verb("wake", "a1"));
    expect((await world.guest("a1")).memory.counter).toBe(counted);
    await expectWhole(world, { leftovers: true });
  });
});

test("a call during a checkpoint is answered once the agent goes on, not when all is written", async () => {
  let answered = 0;
  world.duringStep = async (step) => {
    if (step !== "checkpoint.manifest-written") return;
    world.duringStep = null;
    const called = await world.engine.execute(exec("a1", "echo", "hello"));
    answered = called.process;
  };
  await world.execute(checkpoint("a1", "cut"));
  expect(answered).toBeGreaterThan(0);
  await expectWhole(world);
});
