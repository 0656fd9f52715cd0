import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { beginProgress, during } from "./progress.ts";

let written: string[];
const { isTTY } = process.stderr;

beforeEach(() => {
  vi.useFakeTimers();
  written = [];
  vi.spyOn(process.stderr, "write").mockImplementation((text) => written.push(String(text)) > 0);
  process.stderr.isTTY = false;
});
afterEach(() => {
  process.stderr.isTTY = isTTY;
  vi.restoreAllMocks();
  vi.useRealTimers();
});

it("says nothing of what is over within a second, nor to programs", () => {
  for (const json of [false, true]) {
    const progress = beginProgress(json, "Waking agent");
    vi.advanceTimersByTime(json ? 60_000 : 999);
    progress.show("half");
    progress.end();
    vi.advanceTimersByTime(60_000);
  }
  expect(written).toEqual([]);
});

it("is a line at first and one now and then where no terminal shows it, each with how far it is", () => {
  const progress = beginProgress(false, "Exporting agent");
  vi.advanceTimersByTime(1000);
  progress.show("1 MiB");
  vi.advanceTimersByTime(4000);
  progress.show("7 MiB");
  vi.advanceTimersByTime(6000);
  progress.end();
  vi.advanceTimersByTime(60_000);
  expect(written).toEqual([
    "Exporting agent …\n",
    "Exporting agent: 7 MiB, 6 s so far …\n",
    "Exporting agent: 7 MiB, 11 s so far …\n",
  ]);
});

it("is one line on a terminal, drawn anew and taken away", () => {
  process.stderr.isTTY = true;
  const progress = beginProgress(false, "Verifying agent");
  vi.advanceTimersByTime(1000);
  progress.show("2 of 4");
  vi.advanceTimersByTime(2000);
  progress.end();
  progress.end();
  expect(written.join("")).not.toContain("\n");
  expect(written[0]).toBe("\r\x1b[2K⠋ Verifying agent … 1 s");
  expect(written.at(-2)).toContain(" Verifying agent: 2 of 4 … 3 s");
  expect(written.at(-1)).toBe("\r\x1b[2K");
});

it("ends with the work, also with one that fails", async () => {
  const failing = during(false, "Stopping agent", Promise.reject(new Error("no")));
  await expect(failing).rejects.toThrow("no");
  vi.advanceTimersByTime(60_000);
  expect(written).toEqual([]);
});
