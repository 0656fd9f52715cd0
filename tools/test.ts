/**
 * The test runner behind `npm test`, `.ci/run` and `npm run test:soak`.
 *
 * Tiers differ only in how much of the seeded matrices is drawn (`PERDURE_TIER`, read by the tests):
 * `test` a small sample, `ci` a larger one of the crash matrix and the simulation, with some of the long suites that
 * `test` leaves out, `soak` all.
 * Ends with what failed, said again, and one line, `N passed, N failed`.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { sample } from "../test/fixtures/sample.ts";
import { type TestReport, reportVariable } from "./test-report.ts";

/**
 * Suites on real VMs that take long; the others are run by `npm test`, which stays below a quarter of an hour. Tier
 * `ci` draws some of these.
 */
const long = [
  "test/e2e/concurrency.test.ts",
  "test/e2e/copy-folder.test.ts",
  "test/e2e/e2b.test.ts",
  "test/e2e/e2b-case.test.ts",
  "test/e2e/e2b-methods.test.ts",
  "test/e2e/image.test.ts",
  "test/e2e/layers.test.ts",
  "test/e2e/machine-event.test.ts",
  "test/e2e/egress.test.ts",
  "test/e2e/port-life.test.ts",
  "test/e2e/port.test.ts",
  "test/e2e/process.test.ts",
  "test/e2e/resize.test.ts",
  "test/e2e/rest.test.ts",
  "test/e2e/wedge.test.ts",
];

const longDrawn = 9;

/** Longer ones yet, or such as need a host that does nothing else: only in tier `soak`. */
const soakOnly = [
  "test/e2e/browser.test.ts",
  "test/e2e/chaos.test.ts",
  "test/e2e/export.test.ts",
  "test/e2e/long-sleep.test.ts",
  "test/e2e/many-checkpoints.test.ts",
  "test/e2e/preview-browser.test.ts",
  "test/e2e/real-client.test.ts",
  "test/e2e/real-life.test.ts",
  "test/e2e/unsynced.test.ts",
  "test/e2e/wait.test.ts",
];

/** As many failures as are repeated at the end, and as many tests that did not run. */
const failuresMax = 40;
const notRunMax = 20;
/** Of a part that failed and did not say what: as much of its output. */
const tailLinesMax = 40;
/** How long what a part has printed may take to arrive after its end. */
const drainMs = 5_000;

interface Part extends TestReport {
  readonly name: string;
}

interface Ended {
  readonly code: number;
  /** Its last lines of output. */
  readonly tail: string;
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

const parts: Part[] = [];
switch (tier) {
  case "test":
    parts.push(await guest(), await vitest("unit", []));
    parts.push(
      await vitest(
        "vm",
        [...long, ...soakOnly].flatMap((file) => ["--exclude", file]),
      ),
    );
    break;
  case "ci":
    parts.push(await vitest("vm", ["test/crash", ...sample(long, longDrawn, Number(seed))]));
    parts.push(await vitest("unit", ["test/simulation"]));
    break;
  default:
    parts.push(await guest(), await vitest("unit", []), await vitest("vm", []));
}
const passed = parts.reduce((sum, part) => sum + part.passed, 0);
const failures = parts.flatMap((part) => part.failures.map((failure) => ({ part, failure })));
const notRun = parts.flatMap((part) => part.notRun.map((test) => ({ part, test })));
for (const { part, test } of notRun.slice(0, notRunMax)) {
  const why = test.message === "" ? "" : `: ${test.message}`;
  console.log(`not run ${[part.name, test.file, test.name].join(" > ")}${why}`);
}
// The end of a log is what is kept of it: it says again what failed.
for (const { part, failure } of failures.slice(0, failuresMax)) {
  console.log(`FAILED ${[part.name, failure.file, failure.name].filter(Boolean).join(" > ")}`);
  for (const line of failure.message.split("\n")) console.log(`    ${line}`);
}
if (failures.length > failuresMax) console.log(`… and ${failures.length - failuresMax} more`);
for (const part of parts) {
  console.log(
    `${part.name}: ${part.passed} passed, ${part.failures.length} failed, ${part.notRun.length} not run`,
  );
}
console.log(`${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length > 0 || passed === 0 ? 1 : 0;

/** The guest agent's own tests: parsers, logs and an end-to-end run under sanitizers. One count. */
async function guest(): Promise<Part> {
  const { code, tail } = await run("make", ["-C", "guest", "test"]);
  const failures = code === 0 ? [] : [{ file: "", name: `make ended with ${code}`, message: tail }];
  return { name: "guest", passed: code === 0 ? 1 : 0, notRun: [], failures };
}

async function vitest(project: string, filters: readonly string[]): Promise<Part> {
  const folder = mkdtempSync(join(tmpdir(), "perdure-test-"));
  const path = join(folder, "report.json");
  try {
    const ended = await run(
      process.execPath,
      [
        "node_modules/vitest/vitest.mjs",
        "run",
        "--project",
        project,
        "--reporter=default",
        "--reporter=./tools/test-report.ts",
        ...filters,
      ],
      { [reportVariable]: path },
    );
    return { name: project, ...reported(path, ended) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What a run of vitest reported, and that it failed where the report does not say so. */
function reported(path: string, { code, tail }: Ended): TestReport {
  let report: TestReport;
  try {
    report = JSON.parse(readFileSync(path, "utf8")) as TestReport;
  } catch {
    report = { passed: 0, notRun: [], failures: [] };
    code ||= 1;
  }
  if (code === 0 || report.failures.length > 0) return report;
  const name = `vitest ended with ${code} and did not report why; its last output`;
  return { ...report, failures: [{ file: "", name, message: tail }] };
}

/** Shows what a command prints, and keeps the end of it. */
function run(command: string, args: readonly string[], more: NodeJS.ProcessEnv = {}) {
  const colour = process.stderr.isTTY ? { FORCE_COLOR: "1" } : {};
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...environment, ...colour, ...more },
  });
  let kept = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      process.stderr.write(text);
      kept = (kept + text)
        .split("\n")
        .slice(-tailLinesMax - 1)
        .join("\n");
    });
  }
  return new Promise<Ended>((resolve) => {
    const end = (code: number) => {
      // A process that outlived the command may hold its output open; nobody waits for that.
      child.stdout.destroy();
      child.stderr.destroy();
      resolve({ code, tail: kept.trimEnd() });
    };
    child.on("error", (error) => {
      kept += error.message;
      end(1);
    });
    child.on("exit", (code) => {
      const late = setTimeout(() => end(code ?? 1), drainMs);
      child.on("close", () => {
        clearTimeout(late);
        end(code ?? 1);
      });
    });
  });
}
