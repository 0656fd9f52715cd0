/**
 * The crash matrix: the daemon, the VM, or both are killed with SIGKILL at a named durable step of a
 * verb; a new daemon starts; then I1–I3 must hold and the agent must be usable.
 *
 * Tier `test` draws a few of the cases, `ci` more, `soak` takes all; the seed is in the title.
 */
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { steps } from "@perdure/daemon/core/step.ts";
import { DaemonUnderTest } from "../e2e/daemon-under-test.ts";
import * as scene from "./scene.ts";
import { seed, tier } from "./scene.ts";

/** From the verb's end until the daemon's process is gone. */
const GONE_MS = 20_000;

const cases = scene.drawn(["daemon", "vmm", "both"], { test: 5, ci: 28 });

test("C23 every step belongs to a verb of the matrix, and each verb has steps", () => {
  expect([...new Set(steps.map(scene.verbOf))].sort()).toEqual(Object.keys(scene.verbs).sort());
});

describe(`C23 crash matrix, tier ${tier}, seed ${seed}`, () => {
  const under = new DaemonUnderTest();
  let number = 0;

  // Whatever a case did, the next one starts its daemon itself.
  afterEach(() => under.kill());
  afterAll(async () => {
    await under.start();
    expect(await under.end()).toEqual([]);
  });

  test.each(cases)(
    "C23 killing $target at $step leaves one machine or one checkpoint",
    async ({ step, target }) => {
      const name = `c${++number}`;
      const verb = scene.verbOf(step);
      await under.start();
      const before = await scene.setUp(under, verb, name);
      await under.restart({ PERDURE_CRASH: `${step}:${target}`, ...scene.settingsFor(step) });
      const answer = await scene.act(under, verb, name);
      if (target === "vmm") await under.kill();
      else await goneOf(under, String(answer));
      await under.start();
      await scene.check(under, verb, name, before);
      if (verb === "grow") await scene.checkGrown(under, name);
      if (verb === "fork") await scene.checkFork(under, `${name}-fork`);
      const left = await under.client.remove(name).catch((error: unknown) => error);
      expect(left === undefined || scene.isGone(left) || scene.isRemoved(left)).toBe(true);
    },
  );
});

/** The daemon must have ended itself: a verb that came to its own end never reached the step. */
async function goneOf(under: DaemonUnderTest, answer: string): Promise<void> {
  await under.gone(GONE_MS).catch((error: unknown) => {
    throw new Error(`The step was not reached; the verb ended with: ${answer}`, { cause: error });
  });
}
