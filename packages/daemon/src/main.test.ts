/** `perdured` as a process, where it cannot start: none of these needs a VM. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openDatabase } from "./state/sqlite/database.ts";

const program = join(import.meta.dirname, "..", "bin", "perdured.mjs");
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-main-"));
});
afterEach(() => rm(folder, { recursive: true }));

function perdured(...args: string[]): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(process.execPath, [program, ...args], {
    env: { ...process.env, NODE_OPTIONS: "", PERDURE_SOCKET: "", PERDURE_HOME: folder },
    stdio: ["ignore", "ignore", "pipe"],
    encoding: "utf8",
    timeout: 50_000,
    killSignal: "SIGKILL",
  });
  return { status, stderr };
}

test.each([
  ["--home", "/proc/1/perdure", /^perdured: Cannot make the data directory .*ENOENT.* \(\w+\)$/],
  ["--home", "/sys/perdure/x", /^perdured: Cannot make the data directory .*E(PERM|ACCES|ROFS)/],
  ["--home", "/etc/passwd", /^perdured: Cannot use "\/etc\/passwd" for the data directory: it is/],
  ["--images", "/proc/1/perdure", /^perdured: Cannot make the images directory .*ENOENT/],
])("%s %s is a typed error on one line with a hint, at once", (option, path, line) => {
  const { status, stderr } = perdured(option, path);
  expect(status).toBe(path === "/etc/passwd" ? 2 : 1);
  const [said, hint, ...rest] = stderr.split("\n");
  expect(said).toMatch(line);
  expect(hint).toMatch(/^Hint: .*--(home|images)/);
  expect(rest).toEqual([""]);
  if (path !== "/etc/passwd") expect(existsSync(path)).toBe(false);
});

test.each([
  ["--spares", "many"],
  ["--idle-after", "soon"],
  ["--accelerator", "gpu"],
  ["--listen", "nowhere"],
  ["--colour", "red"],
])("%s %s is a wrong call: exit code 2, with the code and a word that helps", (option, value) => {
  const { status, stderr } = perdured(option, value);
  expect(status).toBe(2);
  expect(stderr).toMatch(new RegExp(`^perdured: .*${option}.* \\(bad_request\\)\n`));
});

test("a second daemon of a data directory is told the process that holds it", () => {
  const database = openDatabase(join(folder, "perdure.db"));
  try {
    const { status, stderr } = perdured("--home", folder, "--images", join(folder, "images"));
    expect(status).toBe(1);
    expect(stderr).toMatch(
      new RegExp(
        `^perdured: Cannot open ".*": another daemon holds this data directory, pid ${process.pid} \\(daemon_running\\)\n`,
      ),
    );
  } finally {
    database.close();
  }
});
