import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeId, type AgentId } from "@perdure/protocol";
import { createSystemClock } from "../../clock.ts";
import { WorkPool } from "../work/pool.ts";
import { BackgroundChecks } from "./background-check.ts";
import { StoreContext } from "./store-context.ts";
import { makeStoreHome, type StoreHome } from "./store-home.ts";

const agent: AgentId = makeId("ag", 1_700_000_000_000, new Uint8Array(10));
let pool: WorkPool;
let home: StoreHome;
let context: StoreContext;
beforeEach(async () => {
  pool = new WorkPool();
  home = await makeStoreHome(pool);
  context = new StoreContext({
    home: home.home,
    keyRing: home.keyRing,
    clock: createSystemClock(),
    pool,
    checks: new BackgroundChecks(undefined, undefined),
    findTemplateBase: () => Promise.resolve(null),
    hostBootId: "boot",
  });
});
afterEach(async () => {
  await home.dispose();
  await pool.close();
});

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** A reference does not end in the turn of the loop that made it. */
async function garbageIsGone(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 0));
  collectGarbage();
}

test("what was verified of an agent is one record while somebody uses it", async () => {
  const files = context.verified(agent);
  await garbageIsGone();
  expect(context.verified(agent)).toBe(files);
});

test("of an agent that nobody asks about nothing is held", async () => {
  const unused = new WeakRef(context.verified(agent));
  await garbageIsGone();
  expect(unused.deref()).toBeUndefined();
});
