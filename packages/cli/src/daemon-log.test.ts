import { appendFileSync, closeSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { beginLog, startFailure } from "./daemon-log.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "perdure-log-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

/** What is told after an earlier start said `before` and this one `said`. */
function failure(before: string, said: string) {
  const path = join(folder, "daemon.log");
  appendFileSync(path, before);
  const log = beginLog(path);
  closeSync(log.descriptor);
  appendFileSync(path, said);
  return startFailure(log);
}

it("gives the daemon's own error with its code and hint", () => {
  const said =
    '{"level":"info"}\nperdured: Cannot open "x": it (really) is (data_too_new)\nHint: Do.\n';
  expect(failure("", said)).toMatchObject({
    code: "data_too_new",
    message: 'Cannot start the daemon: Cannot open "x": it (really) is',
    hint: "Do.",
  });
});

it("gives the tail of what else was said, by this start alone", () => {
  const { code, message, hint } = failure("perdured: old (disk_full)\n", "Segmentation fault\n");
  expect({ code, message }).toEqual({
    code: "daemon_unreachable",
    message: "Cannot start the daemon: Segmentation fault",
  });
  expect(hint).toContain("daemon.log");
  expect(failure("old\n", "").message).toContain("it said nothing");
});
