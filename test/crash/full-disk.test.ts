/**
 * The crash matrix, fourth target: the host's disk becomes full to the last byte at a named durable step of a
 * verb. The daemon halts there, the test fills the file system that the data directory lies on, and the daemon
 * goes on. Then the verb succeeds, or ends in a typed error that names the room; the agent is in a settled
 * state; and with room again all is as I1–I3 want it, the verb works, and nothing is left over.
 *
 * Needs root, to mount. Tier `test` draws a few of the cases, `ci` more, `soak` takes all.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { PerdureError } from "@perdure/sdk";
import { DaemonUnderTest, until } from "../e2e/daemon-under-test.ts";
import { SmallDisk } from "../fixtures/small-disk.ts";
import * as scene from "./scene.ts";
import { seed, tier } from "./scene.ts";

const MIB = 1024 * 1024;
/** Holds a tenant's copy of the template, two captures or an own base, and what agents write. */
const DISK_BYTES = 1400 * MIB;
const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("The full disk is skipped: mounting a small file system needs root");

const cases = scene.drawn(["full"], { test: 2, ci: 6 });

describe.skipIf(!isRoot)(`C15 full disk at each step, tier ${tier}, seed ${seed}`, () => {
  const disk = new SmallDisk("perdure-full-step");
  const under = new DaemonUnderTest(join(disk.mount, "home"));
  let number = 0;

  /** The folders of agents. */
  const left = (): string[] => globSync(join(under.home, "agents/*"));

  beforeAll(() => disk.mountAs("ext4", DISK_BYTES));
  afterEach(async () => {
    await under.kill();
    disk.makeRoom();
  });
  afterAll(async () => {
    try {
      await under.start();
      expect(await under.end()).toEqual([]);
    } finally {
      disk.unmount();
    }
  });

  test.each(cases)("C15 a disk that gets full at $step loses nothing", async ({ step }) => {
    const name = `f${++number}`;
    const verb = scene.verbOf(step);
    await under.start();
    const others = left();
    const before = await scene.setUp(under, verb, name);
    await under.restart({ PERDURE_CRASH: `${step}:halt`, ...scene.settingsFor(step) });
    const { pid } = under;
    if (pid === undefined) throw new Error("There is no daemon");
    let ended: unknown = undefined;
    const verbEnd = scene.act(under, verb, name).then((error) => (ended = error));
    await until(
      `the daemon to halt at ${step}`,
      () => {
        if (ended !== undefined) throw new Error(`It was not reached: ${messageOf(ended)}`);
        return isHalted(pid);
      },
      200_000,
    );
    disk.fill();
    process.kill(pid, "SIGCONT");
    const error = await verbEnd;

    if (error !== null) expectNamesRoom(error);
    const found = await under.client.show(name).catch((failure: unknown) => failure);
    if (!scene.isGone(found)) {
      expect(["awake", "asleep", "stopped", "failed"]).toContain(
        (found as { state: string }).state,
      );
    }

    disk.makeRoom();
    // A guest that was asked to power off still does.
    if (verb === "stop") {
      await until("the stop", async () => (await under.client.show(name)).state === "stopped");
    }
    await until("the VM to go on", () => goesOn(under, name));
    await scene.check(under, verb, name, before);
    if (error !== null) await scene.repeat(under, verb, name);
    if (verb === "fork") await scene.checkFork(under, `${name}-fork`);
    const removed = await under.client.remove(name).catch((failure: unknown) => failure);
    expect(removed === undefined || scene.isGone(removed) || scene.isRemoved(removed)).toBe(true);
    await until("nothing to be left over", () => left().every((path) => others.includes(path)));
  });
});

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "success";
}

/** Every thread of it stands still. */
function isHalted(pid: number): boolean {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return stat.slice(stat.lastIndexOf(")") + 2).startsWith("T");
}

/** The room that the daemon needs is known; how much a guest that could not write wants is not. */
function expectNamesRoom(error: unknown): void {
  if (!(error instanceof PerdureError)) throw error;
  expect(["disk_full", "agent_paused"], error.message).toContain(error.code);
  expect(`${error.message} ${error.hint ?? ""}`).toMatch(
    /\d+ bytes|[Ff]ree room on the host's disk/,
  );
}

/** Whether calls reach it, if it is awake: it may have to go on after a pause that is not recorded yet. */
async function goesOn(under: DaemonUnderTest, name: string): Promise<boolean> {
  const agent = await under.client.show(name).catch(() => null);
  if (agent?.state !== "awake") return true;
  return under.sh(name, "true").then(
    () => true,
    () => false,
  );
}
