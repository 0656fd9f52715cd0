/** Shell completion as the shells ask for it, by the built command. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Perdure } from "@perdure/sdk";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-complete-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

/** What is offered after `words`, the last of which is being typed. */
async function offered(...words: string[]): Promise<string[]> {
  const child = spawn(process.execPath, [bin, "complete", "--", ...words], {
    env: { ...process.env, PERDURE_HOME: folder },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => (text += chunk.toString()));
  await new Promise((resolve) => child.once("close", resolve));
  return text
    .split("\n")
    .flatMap((line) => (line === "" || line.startsWith(":") ? [] : [line.split("\t")[0] ?? ""]));
}

it("offers verbs, options, their choices, and the names of agents where a daemon answers", async () => {
  expect(await offered("sle")).toEqual(["sleep"]);
  expect(await offered("create", "--on-crash", "")).toEqual(["checkpoint", "disk", "ask"]);
  expect(await offered("egress", "a1", "o")).toEqual(["otherwise", "open"]);
  expect(await offered("fork", "--c")).toEqual(expect.arrayContaining(["--checkpoint", "--count"]));
  await using perdure = new Perdure({ socketPath: join(folder, "run", "perdure.sock") });
  for (const name of ["builder", "tester"]) await perdure.create({ name });
  expect(await offered("exec", "")).toEqual(["builder", "tester"]);
  expect(await offered("sleep", "te")).toEqual(["tester"]);
  await fake.close();
  expect(await offered("exec", "")).toEqual([]);
});

it.each(["bash", "zsh", "fish"])("prints a script for %s", (shell) => {
  const { stdout, status } = spawnSync(process.execPath, [bin, "complete", shell], {
    encoding: "utf8",
  });
  expect(status).toBe(0);
  expect(stdout).toContain("perdure complete --");
  if (shell !== "bash") return;
  expect(spawnSync("bash", ["-n"], { input: stdout }).status).toBe(0);
});
