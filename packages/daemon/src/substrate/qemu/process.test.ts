import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { createSystemClock } from "../../clock.ts";
import { identify, isAlive, killAndWait, parseStat } from "./process.ts";

const clock = createSystemClock();

test("a program's name may hold spaces and parentheses", () => {
  const rest = `S 1 ${"0 ".repeat(9)}7 5 0 0 20 0 3 0 4242 ${"0 ".repeat(20)}`;
  expect(parseStat(`12 (a) b (c) ${rest}`)).toEqual({
    state: "S",
    cpuTicks: 12,
    threads: 3,
    startTicks: 4242,
  });
});

test("only the very process is ended", async () => {
  const child = spawn("sleep", ["60"]);
  const identity = await identify(child.pid ?? 0);
  const stranger = { ...identity, startTicks: identity.startTicks - 1 };
  await killAndWait(stranger, clock);
  expect(await isAlive(identity)).toBe(true);
  const ended = once(child, "exit");
  await killAndWait(identity, clock);
  expect(await isAlive(identity)).toBe(false);
  await killAndWait(identity, clock);
  await ended;
});
