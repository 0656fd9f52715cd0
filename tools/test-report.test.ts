import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { type TestReport, reportVariable } from "./test-report.ts";

/** What vitest reports of these files. */
function reportOf(files: Record<string, string>): TestReport {
  const folder = mkdtempSync(join(tmpdir(), "perdure-test-report-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const path = join(folder, "report.json");
    spawnSync(
      process.execPath,
      [
        resolve("node_modules/vitest/vitest.mjs"),
        ...["run", "--root", folder, "--globals"],
        `--reporter=${resolve("tools/test-report.ts")}`,
      ],
      { cwd: folder, env: { ...process.env, [reportVariable]: path }, stdio: "ignore" },
    );
    return JSON.parse(readFileSync(path, "utf8")) as TestReport;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test("the report counts what passed and what did not run", () => {
  const report = reportOf({
    "a.test.js": `test("one", () => {}); test("two", (context) => context.skip("no reason"));`,
  });
  expect(report).toEqual({
    passed: 1,
    notRun: [{ file: "a.test.js", name: "two", message: "no reason" }],
    failures: [],
  });
});

test("the report says what failed, in whichever way", () => {
  const report = reportOf({
    "difference.test.js": `describe("of", () => { test("a test", () => expect({ n: 1 }).toEqual({ n: 2 })); });`,
    "hook.test.js": `describe("behind", () => { beforeAll(() => { throw new Error("no rig"); }); test("x", () => {}); });`,
    "import.test.js": `import "./missing.js"; test("x", () => {});`,
    "unhandled.test.js": `test("x", async () => {
      void Promise.reject(new Error("nobody caught me"));
      await new Promise((done) => setImmediate(done));
    });`,
    "worker.test.js": `test("x", () => { process.kill(process.pid, "SIGKILL"); });`,
  });
  const failure = (file: string, name: string, ...parts: string[]) => ({
    file,
    name,
    message: expect.stringMatching(new RegExp(parts.join("[^]*"))) as unknown,
  });
  expect(report.passed).toBe(1);
  expect(report.failures).toHaveLength(6);
  expect(report.failures).toEqual(
    expect.arrayContaining([
      failure("difference.test.js", "of > a test", "AssertionError", '-   "n": 2', '\\+   "n": 1'),
      failure("hook.test.js", "behind", "no rig"),
      failure("import.test.js", "the file, or a hook of it", "missing.js"),
      failure("worker.test.js", "the file", "did not finish"),
      failure("", "an error that belongs to no test", "nobody caught me"),
      failure("", "an error that belongs to no test", "Caused by", "SIGKILL", "worker.test.js"),
    ]),
  );
});
