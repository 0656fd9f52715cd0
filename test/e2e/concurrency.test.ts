/** Many callers at once: one daemon, one machine per agent, one agent per name. */
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PerdureError } from "@perdure/sdk";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { machinesOf, refusal } from "./host-view.ts";

describe("two at once", () => {
  const under = new DaemonUnderTest();

  beforeAll(() => under.start());
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test("C20 fifty concurrent wakes give one machine and all callers the same generation", async () => {
    const { client } = under;
    const { id, generation } = await client.create({ name: "many" });
    await startCounter(under, "many");
    const before = await readCount(under, "many");
    await client.sleep("many");
    expect(machinesOf(under, id)).toEqual([]);
    const most = watchMachines(under, id);
    const answers = await Promise.all(Array.from({ length: 50 }, () => client.wake("many")));
    expect(await most()).toBe(1);
    for (const { agent, report } of answers) {
      expect([agent.state, agent.generation]).toEqual(["awake", generation + 1]);
      expect(report?.generation).toBe(generation + 1);
    }
    expect(machinesOf(under, id)).toHaveLength(1);
    expect((await client.show("many")).generation).toBe(generation + 1);
    const after = await readCount(under, "many");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "many", Math.max(before.count, after.count));
  });

  test("C20 fifty calls into a sleeping agent wake it once and are all answered", async () => {
    const { client } = under;
    const { id, generation } = await client.sleep("many");
    const most = watchMachines(under, id);
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => client.run("many", ["/bin/echo", String(i)])),
    );
    expect(await most()).toBe(1);
    expect(answers.map(({ stdout }) => Number(Buffer.from(stdout).toString()))).toEqual(
      Array.from({ length: 50 }, (_, i) => i),
    );
    expect((await client.show("many")).generation).toBe(generation + 1);
  });

  test("C22 concurrent sleeps, wakes and stops of one agent are joined or refused with a code", async () => {
    const { client } = under;
    const { id } = await client.show("many");
    const most = watchMachines(under, id);
    const rounds = [
      ["sleep", "wake", "sleep", "wake", "sleep", "sleep", "wake"],
      ["sleep", "stop", "wake", "sleep", "start", "stop", "wake"],
    ] as const;
    for (const verbs of rounds) {
      const outcomes = await Promise.allSettled(verbs.map((verb) => client[verb]("many")));
      for (const outcome of outcomes) {
        if (outcome.status === "fulfilled") continue;
        expect(outcome.reason).toBeInstanceOf(PerdureError);
        const { code, hint } = outcome.reason as PerdureError;
        expect(["agent_state", "sleep_cancelled"]).toContain(code);
        if (code === "agent_state") expect(hint).toBeDefined();
      }
      const { state } = await client.show("many");
      expect(["awake", "asleep", "stopped"]).toContain(state);
      expect(machinesOf(under, id)).toHaveLength(state === "awake" ? 1 : 0);
      if (state === "stopped") await client.start("many");
      expect(await under.sh("many", "echo here")).toBe("here");
    }
    expect(await most()).toBe(1);
  });

  test("C22 the same sleep asked for eight times at once is one sleep", async () => {
    const { client } = under;
    const before = await client.checkpoints("many");
    const answers = await Promise.all(Array.from({ length: 8 }, () => client.sleep("many")));
    expect(new Set(answers.map(({ state }) => state))).toEqual(new Set(["asleep"]));
    expect(new Set(answers.map(({ head }) => head)).size).toBe(1);
    const known = new Set(before.map(({ id }) => id));
    const added = (await client.checkpoints("many")).filter(({ id }) => !known.has(id));
    expect(added).toHaveLength(1);
  });

  test("C22 of six creates of one name one makes an agent and five are refused as agent_exists", async () => {
    const { client } = under;
    const outcomes = await Promise.allSettled(
      Array.from({ length: 6 }, () => client.create({ name: "contested" })),
    );
    const made = outcomes.filter((outcome) => outcome.status === "fulfilled");
    const codes = outcomes.flatMap((outcome) =>
      outcome.status === "rejected" ? [(outcome.reason as PerdureError).code] : [],
    );
    expect(made).toHaveLength(1);
    expect(codes).toEqual(Array(5).fill("agent_exists"));
    const id = String(made[0]?.value.id);
    expect((await client.show("contested")).id).toBe(id);
    expect(machinesOf(under, id)).toHaveLength(1);
    // What the five had begun is gone: the folders are those of the agents that are listed.
    const listed = [];
    for await (const agent of client.list()) listed.push(agent.id);
    expect(readdirSync(`${under.home}/agents`).sort()).toEqual(listed.sort());
  });

  test("C26 a removed agent's name can be used at once, and nothing of the old one is in the new", async () => {
    const { client } = under;
    const old = await client.show("contested");
    const secret = randomBytes(16).toString("hex");
    await client.writeFile("contested", "/home/user/secret", secret);
    expect((await client.remove("contested")).state).toBe("removed");
    expect((await refusal(client.remove("contested"))).code).toBe("agent_not_found");
    expect(machinesOf(under, old.id)).toEqual([]);
    const fresh = await client.create({ name: "contested" });
    expect(fresh.id).not.toBe(old.id);
    expect(fresh.generation).toBe(1);
    expect(await client.checkpoints("contested")).toEqual([]);
    expect((await refusal(client.readFile("contested", "/home/user/secret"))).code).toBe(
      "path_not_found",
    );
    expect((await refusal(client.show(old.id))).code).toBe("agent_not_found");
    expect(readdirSync(`${under.home}/agents`)).not.toContain(old.id);
  });

  test("C26 a remove that meets wakes and calls wins, and they are told that the agent is gone", async () => {
    const { client } = under;
    const { id } = await client.sleep("contested");
    const outcomes = await Promise.allSettled([
      client.wake("contested"),
      client.run("contested", ["/bin/true"]),
      client.remove("contested"),
      client.wake("contested"),
      client.run("contested", ["/bin/true"]),
    ]);
    expect(outcomes[2].status).toBe("fulfilled");
    for (const outcome of outcomes) {
      if (outcome.status === "fulfilled") continue;
      expect(["agent_not_found", "interrupted"]).toContain((outcome.reason as PerdureError).code);
    }
    expect((await refusal(client.show("contested"))).code).toBe("agent_not_found");
    expect(machinesOf(under, id)).toEqual([]);
  });

  test("C25 list and show never disagree, and sleeping agents are in the list", async () => {
    const { client } = under;
    await client.create({ name: "watched" });
    const progress = { done: false };
    const verbs = (async () => {
      for (let i = 0; i < 2; i++) {
        await client.sleep("watched");
        await client.wake("watched");
      }
      await client.stop("watched");
      await client.start("watched");
      progress.done = true;
    })();
    let compared = 0;
    const seen = new Set<string>();
    while (!progress.done) {
      const before = await client.show("watched");
      const { agents } = await client.listPage();
      const after = await client.show("watched");
      const listed = agents.filter(({ name }) => name === "watched");
      expect(listed).toHaveLength(1);
      // Only where nothing happened in between must all three be the same.
      if (JSON.stringify(before) !== JSON.stringify(after)) continue;
      expect(listed[0]).toEqual(before);
      seen.add(before.state);
      compared++;
    }
    await verbs;
    expect(compared).toBeGreaterThan(5);
    expect(seen.size).toBeGreaterThan(1);
    await client.sleep("watched");
    const { agents } = await client.listPage({ state: "asleep" });
    expect(agents.map(({ name }) => name)).toContain("watched");
  });
});

describe("calls that meet a sleep or a wake", () => {
  const under = new DaemonUnderTest();
  const stateIs = (name: string, state: string) =>
    until(`${name} to be ${state}`, async () => (await under.client.show(name)).state === state);

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "met" });
    await startCounter(under, "met");
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test("C29 a call during falling asleep cancels the sleep and is answered without a wake", async () => {
    const { client } = under;
    // Enough to write that the call comes before it is written.
    await under.sh("met", "head -c 150M /dev/urandom > /dev/shm/much");
    const cancelled: boolean[] = [];
    for (let round = 0; round < 4; round++) {
      const { generation, head, id } = await client.show("met");
      const machines = machinesOf(under, id);
      const before = await readCount(under, "met");
      await under.sh("met", `printf ${round} | dd of=/dev/shm/much bs=1 seek=1M conv=notrunc`);
      const sleep = client.sleep("met").then(
        () => "asleep",
        (error: unknown) => (error as PerdureError).code,
      );
      await stateIs("met", "falling-asleep");
      expect(await under.sh("met", "echo answered")).toBe("answered");
      const slept = await sleep;
      const after = await client.show("met");
      if (slept === "sleep_cancelled") {
        expect([after.generation, after.head]).toEqual([generation, head]);
        expect(machinesOf(under, id)).toEqual(machines);
      } else {
        expect([slept, after.generation]).toEqual(["asleep", generation + 1]);
      }
      cancelled.push(slept === "sleep_cancelled");
      const { pid, count } = await readCount(under, "met");
      expect(pid).toBe(before.pid);
      await countsOn(under, "met", Math.max(count, before.count));
    }
    expect(cancelled).toContain(true);
    await under.sh("met", "rm /dev/shm/much");
  });

  /** Calls the sleeping agent and stops the machine that wakes for it, before it is let out. */
  async function callAndStop(line: string) {
    const { client } = under;
    for (;;) {
      const { generation, id } = await client.sleep("met");
      const call = under.sh("met", line);
      call.catch(() => undefined);
      await until("the machine that wakes", () => machinesOf(under, id).length === 1);
      const [machine = 0] = machinesOf(under, id);
      process.kill(machine, "SIGSTOP");
      const { state } = await client.show("met");
      if (state === "waking") return { generation: generation + 1, machine, call };
      process.kill(machine, "SIGCONT");
      await call;
    }
  }

  test("C32 calls wait for a wake that is slow, and are all answered", async () => {
    await under.sh("met", "rm -f /dev/shm/calls");
    const { generation, machine, call } = await callAndStop("echo 0");
    const more = [1, 2, 3].map((i) => under.sh("met", `echo ${i} >> /dev/shm/calls; echo ${i}`));
    const answered = Promise.race([call, ...more]).then(() => "answered");
    const seconds = new Promise((resolve) => setTimeout(() => resolve("waiting"), 2_000));
    expect(await Promise.race([answered, seconds])).toBe("waiting");
    process.kill(machine, "SIGCONT");
    expect(await Promise.all([call, ...more])).toEqual(["0", "1", "2", "3"]);
    expect((await under.client.show("met")).generation).toBe(generation);
    expect(await under.sh("met", "sort /dev/shm/calls")).toBe("1\n2\n3");
  });

  test("C32 a call whose wake fails is told so, and the next one is answered", async () => {
    const before = await readCount(under, "met");
    const { generation, machine, call } = await callAndStop("echo called");
    process.kill(machine, "SIGKILL");
    expect((await refusal(call)).code).toBe("machine_failed");
    // The generation of the attempt stays used.
    expect(await under.client.show("met")).toMatchObject({ state: "asleep", generation });
    expect(await under.sh("met", "echo answered")).toBe("answered");
    expect((await under.client.show("met")).generation).toBe(generation + 1);
    const after = await readCount(under, "met");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "met", Math.max(before.count, after.count));
  });

  test("wherever in its wake a machine dies, the wake ends and the agent can be woken again", async () => {
    const { client } = under;
    const { id } = await client.show("met");
    const before = await readCount(under, "met");
    for (let round = 0; round < 40; round++) {
      await client.sleep("met");
      const woken = client.wake("met").catch((error: unknown) => (error as PerdureError).code);
      await until("the machine that wakes", () => machinesOf(under, id).length === 1);
      await new Promise((next) => setTimeout(next, round * 2.5));
      for (const pid of machinesOf(under, id)) process.kill(pid, "SIGKILL");
      const answer = await woken;
      if (typeof answer === "string") expect(answer).toBe("machine_failed");
      await until("the death to be seen", async () => {
        const { state } = await client.show("met");
        return state === "asleep" || state === "failed";
      });
      await client.wake("met");
    }
    const after = await readCount(under, "met");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "met", after.count);
  });
});

describe("command lines at once", () => {
  const under = new DaemonUnderTest();

  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test("C22 four command lines that find no daemon start one", async () => {
    const runs = await Promise.all(
      Array.from({ length: 4 }, () => under.perdure(["list", "--json"])),
    );
    for (const { code, stdout, stderr } of runs) {
      expect([code, stderr]).toEqual([0, ""]);
      expect(JSON.parse(stdout)).toEqual([]);
    }
    const { pid } = await under.client.health();
    expect(daemonsOf(under.home)).toEqual([pid]);
    await under.client.close();
    const stopped = await under.perdure(["daemon", "stop"]);
    expect(stopped.code).toBe(0);
    expect(daemonsOf(under.home)).toEqual([]);
  });
});

/** Counts the agent's VM processes all the while; the result ends it and is the most at one time. */
function watchMachines(under: DaemonUnderTest, id: string): () => Promise<number> {
  const progress = { watching: true };
  let most = 0;
  const watch = (async () => {
    while (progress.watching) {
      most = Math.max(most, machinesOf(under, id).length);
      await new Promise((next) => setTimeout(next, 10));
    }
  })();
  return async () => {
    progress.watching = false;
    await watch;
    return Math.max(most, machinesOf(under, id).length);
  };
}

function daemonsOf(home: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return command.includes("daemon/src/main.ts") || command.includes("perdured.mjs")
          ? command.includes(home)
          : false;
      } catch {
        return false;
      }
    });
}
