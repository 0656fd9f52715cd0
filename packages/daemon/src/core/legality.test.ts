/** The table of verbs and states, whole: what is done, what is refused, and that each refusal leads on. */
import { agentStateSchema, PerdureError } from "@perdure/protocol";
import type { AgentState, OnCrash } from "@perdure/protocol";
import { describe, expect, test } from "vitest";
import { sampleAgent } from "../../../../test/contract/state-store-sample.ts";
import { ruleFor, type Rule, type Verb } from "./legality.ts";

type Outcome = Exclude<Rule, "refuses"> | "agent_state" | "agent_failed" | "agent_quarantined";

const settled = ["awake", "asleep", "stopped", "quarantined", "failed"] as const;
const quarantined = "agent_quarantined";
const failed = "agent_failed";

const table: Readonly<Record<Verb, readonly [Outcome, Outcome, Outcome, Outcome, Outcome]>> = {
  call: ["does", "wakes", "agent_state", quarantined, failed],
  sleep: ["does", "nothing", "agent_state", quarantined, failed],
  wake: ["nothing", "does", "agent_state", quarantined, "recovers"],
  checkpoint: ["does", "agent_state", "agent_state", quarantined, failed],
  restore: ["does", "does", "does", "does", "does"],
  drop: ["does", "does", "does", "does", "does"],
  fork: ["does", "does", "does", "does", "does"],
  hot: ["does", "does", "does", "does", "does"],
  export: ["does", "does", "does", "does", "does"],
  gc: ["does", "does", "does", "does", "does"],
  stop: ["does", "wakes", "nothing", quarantined, failed],
  start: ["nothing", "agent_state", "does", quarantined, failed],
  recover: ["agent_state", "does", "does", "does", "does"],
  configure: ["does", "does", "does", "does", "does"],
  "set-port": ["does", "does", "does", "does", "does"],
  "set-egress": ["does", "does", "does", "does", "does"],
  hold: ["does", "wakes", "agent_state", quarantined, failed],
  "end-hold": ["does", "does", "does", "does", "does"],
  quarantine: ["does", "does", "does", "nothing", "does"],
  release: ["agent_state", "agent_state", "agent_state", "does", failed],
  remove: ["does", "does", "does", "does", "does"],
};
const verbs = Object.keys(table) as Verb[];

function outcomeOf(
  verb: Verb,
  state: AgentState,
  onCrash: OnCrash = "checkpoint",
): { outcome: string; error?: PerdureError } {
  try {
    return { outcome: ruleFor(verb, sampleAgent("a1", { state, onCrash })) };
  } catch (error) {
    if (!(error instanceof PerdureError)) throw error;
    return { outcome: error.code, error };
  }
}

describe.each(verbs)("%s", (verb) => {
  test.each(settled.map((state, i) => [state, table[verb][i]] as const))(
    "of an agent that is %s: %s",
    (state, wanted) => {
      const { outcome, error } = outcomeOf(verb, state);
      expect(outcome).toBe(wanted);
      if (error === undefined) return;
      expect(error.message).toContain('"a1"');
      expect(error.message).toContain(state);
      expect(error.hint).toMatch(/perdure \w+ a1/);
    },
  );

  test("of a removed agent: it is not there", () => {
    expect(outcomeOf(verb, "removed").outcome).toBe("agent_not_found");
  });
});

/** What the commands that hints name are to this table, and the state each leaves. */
const commands: Readonly<Record<string, readonly [Verb | null, AgentState | null]>> = {
  why: [null, null],
  wake: ["wake", "awake"],
  start: ["start", "awake"],
  restore: ["restore", "awake"],
  recover: ["recover", "awake"],
  release: ["release", "asleep"],
  sleep: ["sleep", "asleep"],
  stop: ["stop", "stopped"],
};

function commandsIn(hint: string | undefined): string[] {
  return [...(hint ?? "").matchAll(/perdure (\w+) a1/g)].map(([, name = ""]) => name);
}

describe.each(["checkpoint", "ask"] as const)("what a refusal hints (onCrash: %s)", (onCrash) => {
  const refusals = verbs.flatMap((verb) =>
    settled
      .map((state) => ({ verb, state, error: outcomeOf(verb, state, onCrash).error }))
      .filter(({ error }) => error !== undefined),
  );

  test.each(refusals)(
    "$verb while $state: is legal there, and leads on",
    ({ verb, state, error }) => {
      const named = commandsIn(error?.hint);
      expect(named).not.toEqual([]);
      const ends = named.flatMap((name) => {
        const [step, end] = commands[name] ?? expect.fail(`The hint names "${name}"`);
        if (step === null) return [];
        const { outcome } = outcomeOf(step, state, onCrash);
        expect(outcome, name).toBeOneOf(["does", "wakes", "recovers"]);
        // A wake leaves the choice to the setting, which leaves it to the owner.
        if (outcome === "recovers") expect(onCrash).not.toBe("ask");
        return end === null ? [] : [end];
      });
      // What is not quarantined cannot come to be released.
      if (verb === "release" && state !== "failed") expect(ends).toEqual([]);
      else if (verb !== "release")
        expect(ends.some((end) => outcomeOf(verb, end).error === undefined)).toBe(true);
    },
  );
});

test("the states without a column are the transitional ones, and the removed", () => {
  const others = agentStateSchema.options.filter(
    (state) => !(settled as readonly AgentState[]).includes(state),
  );
  expect(others).toEqual(["creating", "falling-asleep", "waking", "stopping", "removed"]);
});

test("a failed agent's refusal tells what happened to it", () => {
  const failure = { reason: "panic", message: "no init found", wayBack: "wake", atMs: 1 };
  expect(() => ruleFor("call", sampleAgent("a1", { state: "failed", failure }))).toThrow(
    "panic: no init found",
  );
});
