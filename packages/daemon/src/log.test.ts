import { expect, test } from "vitest";
import { createLog } from "./log.ts";

test("a line keeps what happened and why apart, and lesser levels are left out", () => {
  const lines: string[] = [];
  const log = createLog("info", (line) => lines.push(line));
  log("debug", "Request");
  log("warn", "Layers could not be merged", { agent: "a1", message: "The monitor is closed" });
  expect(lines).toHaveLength(1);
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({
    level: "warn",
    message: "Layers could not be merged",
    cause: "The monitor is closed",
    agent: "a1",
  });
});

test("a cause that is given by its own name is in the line", () => {
  const lines: string[] = [];
  createLog("info", (line) => lines.push(line))("error", "A defect", { cause: "at here" });
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ message: "A defect", cause: "at here" });
});
