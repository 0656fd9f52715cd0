/** Lane: exclusive work alone, shared work side by side, first come, first served. */
import { expect, test } from "vitest";
import { Lane } from "./lane.ts";

/** Work that says when it begins and ends when told. */
function work(log: string[], name: string) {
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const run = async (): Promise<string> => {
    log.push(`+${name}`);
    await ended;
    log.push(`-${name}`);
    return name;
  };
  return { run, end };
}

const settle = (): Promise<void> => new Promise((resume) => setImmediate(resume));

test("exclusive work runs one at a time, in the order it came", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const works = ["a", "b", "c"].map((name) => work(log, name));
  const done = works.map(({ run }) => lane.exclusive(run));
  await settle();
  expect(log).toEqual(["+a"]);
  for (const { end } of works) end();
  expect(await Promise.all(done)).toEqual(["a", "b", "c"]);
  expect(log).toEqual(["+a", "-a", "+b", "-b", "+c", "-c"]);
  expect(lane.idle).toBe(true);
});

test("shared work runs side by side, never beside exclusive work", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const [a, b, c] = [work(log, "a"), work(log, "b"), work(log, "c")];
  const done = [lane.shared(a.run), lane.shared(b.run), lane.exclusive(c.run)];
  await settle();
  expect(log).toEqual(["+a", "+b"]);
  a.end();
  await settle();
  expect(log).not.toContain("+c");
  b.end();
  c.end();
  await Promise.all(done);
  expect(log.at(-2)).toBe("+c");
});

test("nobody starves: shared work that comes after exclusive work waits for it", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const [a, b, c] = [work(log, "a"), work(log, "b"), work(log, "c")];
  const done = [lane.shared(a.run), lane.exclusive(b.run), lane.shared(c.run)];
  await settle();
  expect(log).toEqual(["+a"]);
  a.end();
  await settle();
  expect(log).toEqual(["+a", "-a", "+b"]);
  b.end();
  c.end();
  await Promise.all(done);
  expect(log).toEqual(["+a", "-a", "+b", "-b", "+c", "-c"]);
});

test("what waits is counted where it wants the agent awake, and only while it waits", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const works = ["a", "b", "c", "d"].map((name) => work(log, name));
  const [a, b, c, d] = works.map(({ run }) => run);
  if (a === undefined || b === undefined || c === undefined || d === undefined) throw new Error();
  const done = [lane.exclusive(a)];
  expect(lane.waiting).toBe(0);
  done.push(lane.exclusive(b), lane.exclusive(c, true), lane.shared(d));
  expect(lane.waiting).toBe(2);
  for (const { end } of works) end();
  await Promise.all(done);
  expect(lane.waiting).toBe(0);
});

test("work that fails gives its turn on, and its error to its caller alone", async () => {
  const lane = new Lane();
  const fail = (): Promise<never> => Promise.reject(new Error("no"));
  const done = await Promise.allSettled([
    lane.exclusive(fail),
    lane.shared(fail),
    lane.exclusive(() => Promise.resolve("well")),
  ]);
  expect(done.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled"]);
  expect(lane.idle).toBe(true);
});

test("a verb that lets calls in runs beside them, and beside no other verb", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const [verb, call, next, late] = ["verb", "call", "next", "late"].map((name) => work(log, name));
  if (verb === undefined || call === undefined || next === undefined || late === undefined)
    throw new Error();
  const done = [lane.exclusive(verb.run), lane.shared(call.run)];
  await settle();
  expect(log).toEqual(["+verb"]);
  lane.letCallsIn();
  await settle();
  expect(log).toEqual(["+verb", "+call"]);
  done.push(lane.exclusive(next.run), lane.shared(late.run));
  call.end();
  await settle();
  // A call that came after the next verb waits for it.
  expect(log).toEqual(["+verb", "+call", "-call"]);
  verb.end();
  await settle();
  expect(log.slice(3)).toEqual(["-verb", "+next"]);
  lane.letCallsIn();
  await settle();
  expect(log.slice(5)).toEqual(["+late"]);
  next.end();
  late.end();
  await Promise.all(done);
  expect(lane.idle).toBe(true);
});

test("work is told when someone waits behind it, also one that was there before", async () => {
  const lane = new Lane();
  const log: string[] = [];
  const [a, b] = [work(log, "a"), work(log, "b")];
  const done = [lane.exclusive(a.run)];
  const undo = lane.onWaiting(() => log.push("someone"));
  await settle();
  expect(log).toEqual(["+a"]);
  done.push(lane.exclusive(b.run));
  lane.onWaiting(() => log.push("late"))();
  undo();
  done.push(lane.exclusive(b.run));
  a.end();
  b.end();
  await Promise.all(done);
  expect(log).toEqual(["+a", "someone", "late", "-a", "+b", "-b", "+b", "-b"]);
});

test("work that begins at once disturbs nobody", async () => {
  const lane = new Lane();
  let told = 0;
  lane.onWaiting(() => told++);
  await lane.exclusive(() => Promise.resolve());
  await lane.shared(() => Promise.resolve());
  expect(told).toBe(0);
});
