/**
 * The test runner behind `npm test`, `.ci/run` and `npm run test:soak`.
 *
 * Tiers differ only in how much of the seeded matrices is drawn (`PERDURE_TIER`, read by the tests):
 * `test` a small sample, `ci` a larger one of the crash matrix and the simulation, with long suites that `test`
 * leaves out, `soak` all.
 * Ends with one line, `N passed, N failed`.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

/** Suites on real VMs that take long; the others are run by `npm test`, which stays below a quarter of an hour. */
const long = [
  "test/e2e/concurrency.test.ts",
  "test/e2e/copy-folder.test.ts",
  "test/e2e/image.test.ts",
  "test/e2e/layers.test.ts",
  "test/e2e/machine-event.test.ts",
  "test/e2e/process.test.ts",
  "test/e2e/resize.test.ts",
  "test/e2e/rest.test.ts",
  "test/e2e/wedge.test.ts",
];

/** Longer ones yet, or such as need a host that does nothing else: only in tier `soak`. */
const soakOnly = [
  "test/e2e/browser.test.ts",
  "test/e2e/chaos.test.ts",
  "test/e2e/export.test.ts",
  "test/e2e/long-sleep.test.ts",
  "test/e2e/many-checkpoints.test.ts",
  "test/e2e/real-life.test.ts",
  "test/e2e/unsynced.test.ts",
  "test/e2e/wait.test.ts",
];

interface Counts {
  readonly passed: number;
  readonly failed: number;
}

interface VitestSummary {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numFailedTestSuites: number;
}

const { values } = parseArgs({
  options: { tier: { type: "string", default: "test" }, seed: { type: "string" } },
});
const { tier } = values;
if (!["test", "ci", "soak"].includes(tier)) {
  console.error(`--tier: "${tier}" is none of test, ci, soak`);
  process.exit(2);
}
const seed = values.seed ?? process.env["PERDURE_SEED"] ?? String(Date.now() % 1_000_000);
const environment = { ...process.env, PERDURE_TIER: tier, PERDURE_SEED: seed };
console.error(`tier ${tier}, seed ${seed} (repeat with PERDURE_SEED=${seed})`);

const results: Counts[] = [];
switch (tier) {
  case "test":
    results.push(await guest(), await vitest("unit", []));
    results.push(
      await vitest(
        "vm",
        [...long, ...soakOnly].flatMap((file) => ["--exclude", file]),
      ),
    );
    break;
  case "ci":
    results.push(await vitest("vm", ["test/crash", ...long]));
    results.push(await vitest("unit", ["test/simulation"]));
    break;
  default:
    results.push(await guest(), await vitest("unit", []), await vitest("vm", []));
}
const passed = results.reduce((sum, counts) => sum + counts.passed, 0);
const failed = results.reduce((sum, counts) => sum + counts.failed, 0);
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

/** The guest agent's own tests: parsers, logs and an end-to-end run under sanitizers. One count. */
async function guest(): Promise<Counts> {
  const code = await run("make", ["-C", "guest", "test"]);
  return code === 0 ? { passed: 1, failed: 0 } : { passed: 0, failed: 1 };
}

async function vitest(project: string, filters: readonly string[]): Promise<Counts> {
  const folder = mkdtempSync(join(tmpdir(), "perdure-test-"));
  const report = join(folder, "report.json");
  try {
    const code = await run(process.execPath, [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--project",
      project,
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${report}`,
      ...filters,
    ]);
    return counted(report, code);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function counted(report: string, code: number): Counts {
  let summary: VitestSummary;
  try {
    summary = JSON.parse(readFileSync(report, "utf8")) as VitestSummary;
  } catch {
    return { passed: 0, failed: 1 };
  }
  const failed = summary.numFailedTests;
  // A file that cannot be loaded, or an unhandled rejection, fails the run without failing a test.
  return { passed: summary.numPassedTests, failed: code !== 0 && failed === 0 ? 1 : failed };
}

function run(command: string, args: readonly string[]): Promise<number> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", 2, 2], env: environment });
    child.on("error", (error) => {
      console.error(error.message);
      resolve(1);
    });
    child.on("close", (code) => resolve(code ?? 1));
  });
}
