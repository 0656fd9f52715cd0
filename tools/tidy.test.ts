/**
 * The tidy test: rules about the tree itself. Imports and cycles are held by dependency-cruiser
 * (.dependency-cruiser.mjs), formatting and types by `npm run check`.
 */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);
const placeNames = new Set([
  "utils",
  "util",
  "helpers",
  "helper",
  "common",
  "misc",
  "manager",
  "types",
  "lib",
]);

async function tracked(): Promise<string[]> {
  const { stdout } = await run("git", ["ls-files", "-co", "--exclude-standard", "-z"], {
    maxBuffer: 16 * 1024 * 1024,
  });
  return stdout.split("\0").filter((path) => path !== "");
}

test("imports go one way and there is no cycle", async () => {
  const { stdout } = await run("node_modules/.bin/depcruise", [
    "packages",
    "--config",
    ".dependency-cruiser.mjs",
  ]).catch((error: unknown) => error as { stdout: string });
  expect(stdout).toContain("no dependency violations found");
});

test("every case id listed in test/cases.txt stands in a test title", async () => {
  const cases = readFileSync("test/cases.txt", "utf8")
    .split(/\s+/)
    .filter((id) => id !== "");
  const sources = (await tracked())
    .filter((path) => path.endsWith(".test.ts") || path.startsWith("test/contract/"))
    .map((path) => readFileSync(path, "utf8"));
  const titles = sources.flatMap((text) =>
    [...text.matchAll(/\b(?:test|it|describe)(?:\.\w+(?:\([^)]*\))?)*\(\s*[`"']([^`"']*)/g)].map(
      (match) => match[1] ?? "",
    ),
  );
  const missing = cases.filter(
    (id) => !titles.some((title) => new RegExp(`\\b${id}\\b`).test(title)),
  );
  expect(missing).toEqual([]);
});

test("no file is named as a place instead of an idea, and names are kebab-case", async () => {
  const bad = (await tracked())
    .filter((path) => /^(packages|bench|test|tools)\/.*\.(ts|mjs)$/.test(path))
    .filter((path) => {
      const stem = basename(path).replace(/\.(test\.)?(ts|mjs)$/, "");
      return placeNames.has(stem) || !/^[a-z0-9]+(-[a-z0-9]+)*(\.config)?$/.test(stem);
    });
  expect(bad).toEqual([]);
});

test("no source file is longer than 500 lines", async () => {
  const long = (await tracked())
    .filter((path) => /\.(ts|c|h)$/.test(path) && !/\.test\.ts$|^test\/|\/test\//.test(path))
    .filter((path) => readFileSync(path, "utf8").split("\n").length > 500);
  expect(long).toEqual([]);
});

test("SPECIFICATION.md names for each promise a test that exists, or pending", async () => {
  const rows = readFileSync("SPECIFICATION.md", "utf8")
    .split("\n")
    .filter((line) => /^\| [A-Z]\d/.test(line));
  expect(rows.length).toBeGreaterThan(0);
  const files = new Set(await tracked());
  const wrong = rows.filter((row) => {
    const last = row.split("|").at(-2)?.trim() ?? "";
    if (last.startsWith("pending")) return false;
    const links = [...last.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1] ?? "");
    return links.length === 0 || links.some((path) => !files.has(path));
  });
  expect(wrong).toEqual([]);
});
