/**
 * What an agent must be after a round: its mark, written into memory and onto the disk before anything
 * happens to it, and a program that counts in memory. Every cut that is taken in the round holds the same
 * mark in both, and a count that is not smaller; so of every checkpoint it is known what it brings back.
 */
import { expect } from "vitest";
import type { AgentView, WakeReport } from "@perdure/protocol";
import { countsOn, readCount, startCounter } from "../counter.ts";
import { until, type DaemonUnderTest } from "../daemon-under-test.ts";

export interface Moment {
  /** The last one that was written. */
  readonly mark: number;
  /** Of the program that counts, inside. */
  readonly pid: number;
  /** The program had counted so far, or farther. */
  readonly count: number;
}

/** One of the agents that things happen to. */
export interface Subject {
  readonly name: string;
  readonly id: string;
  /** What its kept checkpoints hold, by their ids; null where more than one moment is possible. */
  readonly cuts: Map<string, Moment | null>;
}

/** What may have become of an agent in a round. */
export interface Outcome {
  /** As it was before the round. */
  readonly before: Moment;
  readonly generation: number;
  /** Where a restore was to lead. */
  readonly restored: Moment | null;
  /** The VM was ended, or the verb ends it without keeping its memory. */
  readonly lost: boolean;
  /** A checkpoint that was answered in the round: nothing older than it may come back by itself. */
  readonly answered: string | null;
}

const memoryMark = "/dev/shm/mark";
const diskMark = "/home/user/mark";

/** Writes `mark`, durably, and sees to it that a program counts. */
export async function mark(
  under: DaemonUnderTest,
  { name }: Subject,
  number: number,
): Promise<Moment> {
  if ((await readCount(under, name)).pid === 0) await startCounter(under, name);
  // Each layer of the disk has something that the next one covers.
  const fill = "head -c 2M /dev/urandom > /home/user/filler";
  await under.sh(name, `${fill}; echo ${number} | tee ${memoryMark} > ${diskMark}; sync`);
  return { mark: number, ...(await readCount(under, name)) };
}

/** Of the agent, awake again. */
export async function check(
  under: DaemonUnderTest,
  subject: Subject,
  now: AgentView,
  report: WakeReport | null,
  outcome: Outcome,
): Promise<void> {
  const { name } = subject;
  const found = await marks(under, name);
  const count = await readCount(under, name);
  const what = JSON.stringify({ found, count, outcome, cut: report?.cut, route: report?.route });
  const isSame = now.generation === outcome.generation;
  const memory = isSame || report?.cut.memory === true;
  if (!memory) {
    expect(outcome.lost, `memory was lost: ${what}`).toBe(true);
    const possible = [outcome.before, outcome.restored].flatMap((each) => each?.mark ?? []);
    expect(possible, what).toContain(found.disk);
    expect([found.memory, count.pid], what).toEqual([0, 0]);
    return;
  }
  const possible = isSame ? [outcome.before] : momentsOf(subject, report, outcome);
  expect(found.memory, `memory and disk are one cut: ${what}`).toBe(found.disk);
  const moment = possible.find((each) => each.mark === found.memory && each.pid === count.pid);
  if (moment === undefined) {
    expect.fail(`None of the moments that can be: ${what} of ${JSON.stringify(possible)}`);
  }
  expect(count.count, what).toBeGreaterThanOrEqual(moment.count);
  await countsOn(under, name, count.count);
}

/** What the cut that a generation began from may hold. */
function momentsOf(
  { cuts }: Subject,
  report: WakeReport | null,
  { before, restored, lost, answered }: Outcome,
): Moment[] {
  const id = report?.cut.checkpoint ?? "";
  const anew = restored === null ? [before] : [before, restored];
  const known = cuts.get(id);
  if (known === null) return [...anew, ...[...cuts.values()].filter((cut) => cut !== null)];
  if (known === undefined || id === answered) return anew;
  // An older one: where the memory was lost, and nothing newer was answered; or by a restore.
  const isOlder = restored === null && (!lost || answered !== null);
  return isOlder ? [] : [known];
}

/** Notes what checkpoints that were taken since hold. */
export async function noteCuts(
  under: DaemonUnderTest,
  { name, cuts }: Subject,
  { before, restored }: Outcome,
): Promise<void> {
  const there = await under.client.checkpoints(name);
  for (const { id, memory } of there) {
    if (memory && !cuts.has(id)) cuts.set(id, restored === null ? before : null);
  }
  const ids = new Set<string>(there.map(({ id }) => id));
  for (const id of cuts.keys()) if (!ids.has(id)) cuts.delete(id);
}

/** Zero: none. */
export async function marks(
  under: DaemonUnderTest,
  name: string,
): Promise<{ memory: number; disk: number }> {
  const read = `for f in ${memoryMark} ${diskMark}; do cat $f 2>/dev/null || echo 0; done`;
  const [memory = 0, disk = 0] = (await under.sh(name, read)).split("\n").map(Number);
  return { memory, disk };
}

/** Waits until the daemon does nothing any more. */
export async function rests(under: DaemonUnderTest, cpuMs: (pid: number) => number): Promise<void> {
  const { pid } = under;
  if (pid === undefined) throw new Error("There is no daemon");
  await until("the daemon to rest", async () => {
    const before = cpuMs(pid);
    await new Promise((next) => setTimeout(next, 500));
    return cpuMs(pid) - before < 200;
  });
}
