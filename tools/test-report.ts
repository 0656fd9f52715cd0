/**
 * A vitest reporter that writes what `tools/test.ts` repeats at its end: how many tests passed, failed and did not
 * run, and everything that failed. That is a test, a file or describe of which a hook failed or that could not be
 * loaded, a file that did not finish because its worker died, and an error that belongs to no test.
 */
import { writeFileSync } from "node:fs";
import { relative } from "node:path";
import { stripVTControlCharacters } from "node:util";
import type { Reporter, SerializedError, TestModule, TestSuite } from "vitest/node";
import type { TestError } from "vitest";

/** The environment variable that names the file to write. */
export const reportVariable = "PERDURE_TEST_REPORT";

/** As much of each text of an error, and as many errors of one test. */
const linesMax = 15;
const columnsMax = 400;
const errorsMax = 3;

export interface TestReport {
  readonly passed: number;
  /** Skipped, with the reason in `message` where one was given, or behind something that failed. */
  readonly notRun: readonly Told[];
  readonly failures: readonly Told[];
}

/** A test, or something around one, that is told at the end. */
export interface Told {
  /** The file, from the root of the repository on; empty for an error that belongs to none. */
  readonly file: string;
  readonly name: string;
  readonly message: string;
}

export default class TestReporter implements Reporter {
  onTestRunEnd(
    modules: readonly TestModule[],
    unhandledErrors: readonly SerializedError[],
    reason: string,
  ): void {
    const path = process.env[reportVariable];
    if (path === undefined) throw new Error(`${reportVariable} is not set`);
    const tests = modules.flatMap((module) => [...module.children.allTests()]);
    const passed = tests.filter((test) => test.result().state === "passed").length;
    const failedTests = tests.filter((test) => test.result().state === "failed");
    const notRun = tests
      .filter((test) => !["passed", "failed"].includes(test.result().state))
      .map((test) => {
        const result = test.result();
        const message = result.state === "skipped" ? (result.note ?? "") : "";
        return { file: file(test.module), name: test.fullName, message };
      });
    const failures = [
      ...modules.flatMap((module) => failuresAround(module)),
      ...failedTests.map((test) => ({
        file: file(test.module),
        name: test.fullName,
        message: texts(test.result().errors ?? []),
      })),
      ...unhandledErrors.map((error) => ({
        file: "",
        name: "an error that belongs to no test",
        message: texts([error]),
      })),
    ];
    if (reason === "interrupted") {
      failures.push({ file: "", name: "the run", message: "It was interrupted" });
    }
    const report: TestReport = { passed, notRun, failures };
    writeFileSync(path, JSON.stringify(report));
  }
}

/** What failed in a file beside its tests. */
function failuresAround(module: TestModule): Told[] {
  const suites: (TestModule | TestSuite)[] = [module, ...module.children.allSuites()];
  const failures = suites
    .filter((suite) => suite.errors().length > 0)
    .map((suite) => ({
      file: file(module),
      name: suite.type === "suite" ? suite.fullName : "the file, or a hook of it",
      message: texts(suite.errors()),
    }));
  if (module.state() === "pending" || module.state() === "queued") {
    failures.push({ file: file(module), name: "the file", message: "It did not finish" });
  }
  return failures;
}

function file(module: TestModule): string {
  return relative(process.cwd(), module.moduleId);
}

/** The beginning of what errors say: message, trace, how far what came is from what was expected, and the cause. */
function texts(errors: readonly (SerializedError | TestError)[]): string {
  return errors.slice(0, errorsMax).map(text).join("\n");
}

function text(error: SerializedError | TestError): string {
  const parts = [
    beginning(error.stack ?? error.message),
    typeof error.diff === "string" ? beginning(error.diff) : "",
    error.cause === undefined ? "" : `Caused by: ${text(error.cause).replace(/^Caused by: /, "")}`,
  ];
  return parts.filter((part) => part !== "").join("\n");
}

function beginning(text: string): string {
  return stripVTControlCharacters(text)
    .trimEnd()
    .split("\n")
    .filter((line) => !/^ +at (.*\/node_modules\/(vite|vitest)\/|new Promise \()/.test(line))
    .slice(0, linesMax)
    .map((line) => line.slice(0, columnsMax))
    .join("\n");
}
