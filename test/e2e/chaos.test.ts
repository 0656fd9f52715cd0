/**
 * Chaos: a verb on one of two agents, and something that befalls the VM, the daemon or the caller at any
 * moment of it, not at a durable step. Whatever it was: every call ends, and tells what happened; the agent
 * settles and comes back with what it had; and nothing runs that should not.
 *
 * The seed is in the title, and each round says what was drawn. `PERDURE_CHAOS_ROUNDS` sets how many;
 * `PERDURE_CASE=<verb>[+<verb>]:<fault>:<ms>,…` runs those instead, each as often.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from "vitest";
import { Perdure, PerdureError } from "@perdure/sdk";
import type { AgentView } from "@perdure/protocol";
import { seed } from "../crash/scene.ts";
import { Random } from "../simulation/random.ts";
import { agentsOpen, faults, wait, type FaultName } from "./chaos/fault.ts";
import { assertTyped, verbs, type Call, type Verb, type VerbName } from "./chaos/verb.ts";
import { check, mark, noteCuts, rests, type Outcome, type Subject } from "./chaos/witness.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";

const rounds = Number(process.env["PERDURE_CHAOS_ROUNDS"] ?? 60);
const only = process.env["PERDURE_CASE"]?.split(",");

/** A call that takes so long hangs: the longest deadline of the product is a cold start's. */
const ENDS_MS = 240_000;
const SETTLES_MS = 120_000;
/** Names under which cuts are kept; more are dropped. */
const CUTS_MAX = 5;

interface Round {
  readonly number: number;
  readonly agent: string;
  readonly verb: VerbName;
  /** Called at the same time. */
  readonly second: VerbName | null;
  readonly fault: FaultName;
  readonly atMs: number;
  readonly pauseMs: number;
}

const verbNames = (Object.keys(verbs) as VerbName[]).flatMap((name) => {
  const { share = 1 }: Verb = verbs[name];
  return Array<VerbName>(share).fill(name);
});
const faultNames = (Object.keys(faults) as FaultName[]).flatMap((name) =>
  Array<FaultName>(faults[name].share).fill(name),
);
const random = new Random(seed);
/** Of every daemon of this run. */
const settings = random.pick<Record<string, string>>([
  {},
  { PERDURE_SPARES: "0" },
  { PERDURE_SPARES: "2" },
  { PERDURE_OWN_BASE_ABOVE: "0" },
]);

/** One of each size that agents have here, and what is on its way. */
const SPARES_MAX = 1 + 2 * Number(settings["PERDURE_SPARES"] ?? 1);

function draw(number: number): Round {
  const verb = random.pick(verbNames);
  const round = {
    number,
    agent: random.pick(["left", "right"]),
    verb,
    second: random.chance(0.25) ? random.pick(verbNames) : null,
    fault: random.pick(faultNames),
    atMs: random.below(verbs[verb].usualMs * 1.2),
    pauseMs: 1_000 + random.below(2_000),
  };
  if (only === undefined) return round;
  const [names = "", fault, atMs] = only[number % only.length]?.split(":") ?? [];
  const [first, second = null] = names.split("+") as VerbName[];
  if (first === undefined) throw new Error(`PERDURE_CASE: "${only.join()}"`);
  return {
    ...round,
    verb: first,
    second,
    fault: fault as FaultName,
    atMs: atMs === undefined ? random.below(verbs[first].usualMs * 1.2) : Number(atMs),
  };
}

const drawn = Array.from({ length: rounds * (only?.length ?? 1) }, (_, number) => {
  const round = draw(number);
  const { agent, verb, second, fault, atMs } = round;
  const names = second === null ? verb : `${verb}+${second}`;
  return { ...round, title: `${number} ${agent} ${names}:${fault}:${atMs}` };
});

describe(`chaos, seed ${seed}, ${JSON.stringify(settings)}`, () => {
  const under = new DaemonUnderTest();
  const subjects = new Map<string, Subject>();
  let exported: Uint8Array = Buffer.alloc(0);

  beforeAll(async () => {
    await under.start(settings);
    const { client } = under;
    await client.create({ name: "origin" });
    await client.sleep("origin");
    const { bytes } = await client.export("origin", { inClear: true, withoutImage: true });
    exported = Buffer.concat(await Array.fromAsync(bytes));
    await client.remove("origin");
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test.each(drawn)("$title", { timeout: 900_000 }, async (round) => {
    onTestFailed(() => console.error(`The daemon's last words:\n${under.logTail}`));
    const subject = await ready(round.agent);
    const before = await mark(under, subject, round.number + 1);
    const { client } = under;
    const { generation } = await client.show(subject.name);
    const others = await othersOf(subject);
    const cut = random.pick([...subject.cuts].filter(([, moment]) => moment !== null));
    const caller = new Perdure({ socketPath: under.socket });
    const leaving = new AbortController();
    const call = { under, caller, subject, cut: cut[0], exported, signal: leaving.signal };
    const first: Verb = verbs[round.verb];
    const second: Verb | null = round.second === null ? null : verbs[round.second];
    await first.before?.({ ...call, prefix: `n${round.number}` });
    const cutsBefore = new Set((await client.checkpoints(subject.name)).map(({ id }) => id));

    const watch = watchMachines(subject, first.besides === true || second?.besides === true);
    const told: string[] = [];
    const calls = [first, second].flatMap((verb, i) =>
      verb === null ? [] : [answer(verb, { ...call, prefix: `n${round.number}${"ab"[i]}` }, told)],
    );
    const over = within(Promise.all(calls), "a call to end");
    over.catch(() => undefined);
    await wait(round.atMs);
    const fault = faults[round.fault].hit({
      under,
      machines: () => machines(subject, [...others.keys()]),
      spares: () => machines(null, []),
      start: () => under.start(settings),
      leave: () => leaving.abort(),
      over,
      pauseMs: round.pauseMs,
    });
    const answers = await over;
    await within(fault, "the fault to end");
    console.info(`${round.title} ${told.join(", ")}`);
    await caller.close();

    const restores = first.restores === true || second?.restores === true;
    const loses = first.loses === true || second?.loses === true || faults[round.fault].loses;
    const answered = answers.find((id) => typeof id === "string") ?? null;
    const outcome: Outcome = {
      before,
      generation,
      restored: restores ? cut[1] : null,
      lost: loses,
      answered: restores ? null : answered,
    };
    const now = await back(subject);
    expect(await watch(), "machines at once").toBeLessThanOrEqual(1);
    await otherAgentsGoOn(others);
    if (now === null || now.id !== subject.id) {
      expect([round.verb, round.second]).toContain("recreate");
      subjects.delete(subject.name);
    } else {
      await check(under, subject, now, await under.client.report(subject.name), outcome);
      await noteCuts(under, subject, outcome);
      for (const id of cutsBefore) if (!subject.cuts.has(id)) subject.cuts.delete(id);
    }
    await tidy();
    await settledMachines();
    await rests(under, cpuMs);
  });

  /** The agent, awake, with a cut to go back to. */
  async function ready(name: string): Promise<Subject> {
    if (under.pid === undefined) await under.start(settings);
    const { client } = under;
    let subject = subjects.get(name);
    const view = await shown(name);
    if (subject === undefined || view === null || view.id !== subject.id) {
      if (view !== null) await client.remove(name);
      const { id } = await client.create({ name });
      subject = { name, id, cuts: new Map() };
      subjects.set(name, subject);
    } else await back(subject);
    const cuts = [...subject.cuts].filter(([, moment]) => moment !== null);
    if (cuts.length === 0) {
      const moment = await mark(under, subject, 1_000_000);
      const { id } = await client.checkpoint(name, { name: `first-${Date.now()}` });
      subject.cuts.set(id, moment);
    }
    return subject;
  }

  /** Brings it back by the way that its state tells. Null: it is gone. */
  async function back({ name }: Subject | { readonly name: string }): Promise<AgentView | null> {
    const { client } = under;
    await letHotGo(name);
    const view = await settled(name);
    if (view === null) return null;
    if (view.state === "stopped") await within(client.start(name), "the start");
    // Of an awake one it does nothing, but after all that was asked before.
    else await within(client.wake(name), `the wake of an agent that is ${view.state}`);
    const now = await settled(name);
    if (now !== null) expect(now.state).toBe("awake");
    return now;
  }

  /** Machines that are only ready are none of the agent's. */
  async function letHotGo(name: string): Promise<void> {
    const { client } = under;
    if ((await shown(name)) === null) return;
    for (const { id } of await client.checkpoints(name)) {
      for (const use of ["fork", "restore"] as const) {
        const gone = client.hot(name, { checkpoint: id, use, count: 0 });
        await within(gone, "hot children to go").catch((error: unknown) => {
          if (!(error instanceof PerdureError && /not_found/.test(error.code))) throw error;
        });
      }
    }
  }

  async function settled(name: string): Promise<AgentView | null> {
    const steady = ["awake", "asleep", "stopped", "failed"];
    let view: AgentView | null = null;
    await until(
      `${name} to settle`,
      async () => {
        view = await shown(name);
        if (view === null) return true;
        const there = writers(view.id).length;
        return steady.includes(view.state) && there === (view.state === "awake" ? 1 : 0);
      },
      SETTLES_MS,
    ).catch((error: unknown) => {
      const machine = view === null ? [] : writers(view.id);
      throw new Error(`${String(error)}: ${JSON.stringify({ view, machine })}`, { cause: error });
    });
    return view;
  }

  async function shown(name: string): Promise<AgentView | null> {
    try {
      return await within(under.client.show(name), "show");
    } catch (error) {
      if (error instanceof PerdureError && error.code === "agent_not_found") return null;
      throw error;
    }
  }

  async function answer(verb: Verb, call: Call, tell: string[]): Promise<string | null> {
    const beganMs = performance.now();
    const after = (what: string) =>
      tell.push(`${what} in ${Math.round(performance.now() - beganMs)}`);
    try {
      const id = await verb.run(call);
      after("done");
      return id;
    } catch (error) {
      assertTyped(error);
      after((error as PerdureError).code);
      return null;
    }
  }

  /** The other agent's generation. */
  async function othersOf({ name }: Subject): Promise<Map<string, AgentView>> {
    const others = [...subjects.values()].filter((each) => each.name !== name);
    const views = await Promise.all(others.map((each) => shown(each.name)));
    return new Map(views.flatMap((view) => (view === null ? [] : [[view.id, view] as const])));
  }

  async function otherAgentsGoOn(others: ReadonlyMap<string, AgentView>): Promise<void> {
    for (const { name, state, generation } of others.values()) {
      expect(await shown(name)).toMatchObject({ state, generation });
      if (state === "awake") expect(await under.sh(name, "echo here")).toBe("here");
    }
  }

  /** What a round made beside: each can be used, and goes. And old cuts. */
  async function tidy(): Promise<void> {
    const { client } = under;
    for await (const { name } of client.list()) {
      if (subjects.has(name) || name === "left" || name === "right") continue;
      const view = await back({ name });
      if (view === null) continue;
      expect(await under.sh(name, "echo here")).toBe("here");
      await client.remove(name);
    }
    for (const { name, cuts } of subjects.values()) {
      const kept = await client.checkpoints(name);
      const named = kept.filter(({ name: cutName }) => cutName !== null);
      for (const { id } of named.slice(0, Math.max(0, named.length - CUTS_MAX))) {
        await client.drop(name, id);
      }
      const there = new Set<string>((await client.checkpoints(name)).map(({ id }) => id));
      for (const id of cuts.keys()) if (!there.has(id)) cuts.delete(id);
    }
  }

  /** One machine for each agent that is awake, and spares. */
  async function settledMachines(): Promise<void> {
    const awake: string[] = [];
    for await (const { id, state } of under.client.list()) if (state === "awake") awake.push(id);
    await until("the machines to be those of agents", () => {
      const owners = under.vmPids().map((pid) => [...agentsOpen(under, pid, flagsOf).writes]);
      const spares = owners.filter((writes) => writes.length === 0);
      const leased = owners.flat();
      return leased.sort().join() === awake.sort().join() && spares.length <= SPARES_MAX;
    }).catch((error: unknown) => {
      const owners = under.vmPids().map((pid) => [pid, ...agentsOpen(under, pid, flagsOf).writes]);
      throw new Error(`${String(error)}: ${JSON.stringify({ awake, owners })}`, { cause: error });
    });
  }

  /** VM processes that may write a disk of the agent. */
  function writers(id: string): number[] {
    return under.vmPids().filter((pid) => agentsOpen(under, pid, flagsOf).writes.has(id));
  }

  /** Of the subject, or of no agent that is known; null: spares. */
  function machines(subject: Subject | null, others: readonly string[]): number[] {
    return under.vmPids().filter((pid) => {
      const { all } = agentsOpen(under, pid, flagsOf);
      if (subject === null) return all.size === 0;
      return all.size > 0 && !others.some((id) => all.has(id));
    });
  }

  function watchMachines({ id }: Subject, besides: boolean): () => Promise<number> {
    const progress = { watching: true };
    let most = 0;
    const watch = (async () => {
      while (progress.watching) {
        if (!besides) most = Math.max(most, writers(id).length);
        await wait(100);
      }
    })();
    return async () => {
      progress.watching = false;
      await watch;
      return Math.max(most, writers(id).length);
    };
  }

  async function within<T>(work: Promise<T>, what: string): Promise<T> {
    const stop = new AbortController();
    const late = new Promise<never>((_, reject) => {
      const timer = setTimeout(() => {
        reject(new Error(`Waited ${ENDS_MS} ms for ${what}; the daemon says:\n${under.logTail}`));
      }, ENDS_MS);
      stop.signal.addEventListener("abort", () => clearTimeout(timer));
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      stop.abort();
    }
  }
});

/** CPU time that a process has used. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

function flagsOf(pid: number, fd: string): number {
  const info = readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8");
  return parseInt(/^flags:\s*([0-7]+)/m.exec(info)?.[1] ?? "0", 8);
}
