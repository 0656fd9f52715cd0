/** `egress`, by the built command, against the real API. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Perdure } from "@perdure/sdk";
import { openFakeServer, type FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
let perdure: Perdure;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-egress-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  perdure = new Perdure({ socketPath: fake.socketPath });
  await perdure.create({ name: "a1" });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const env = { ...process.env, PERDURE_HOME: folder, PERDURE_SOCKET: "", PERDURE_AUTOSTART: "0" };
  return new Promise((resolve) => {
    execFile(process.execPath, [bin, "egress", ...args], { env }, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr });
    });
  });
}

const rules = async () => (await perdure.egress("a1")).rules;

it("shows, allows, denies, and takes rules away; a new rule goes first, and none is there twice", async () => {
  const closed = await run("a1");
  expect(closed).toMatchObject({ code: 0, stderr: "" });
  expect(closed.stdout).toMatch(/way out +open, 0 connections now\notherwise +deny\n/);
  await run("a1", "allow", "*.Example.com:443,80", "10.0.0.0/8", "[2001:db8::1]:22", "--private");
  await run("a1", "deny", "*", "--method", "post", "PUT");
  const { stdout } = await run("a1", "deny", "*", "--method", "POST", "PUT");
  expect(await rules()).toEqual([
    { action: "deny", to: "*", methods: ["POST", "PUT"] },
    { action: "allow", to: "*.example.com", ports: [443, 80], private: true },
    { action: "allow", to: "10.0.0.0/8", private: true },
    { action: "allow", to: "2001:db8::1", ports: [22], private: true },
  ]);
  expect(stdout).toContain("rule 1     deny  *  only POST, PUT");
  expect(stdout).toContain("rule 4     allow  [2001:db8::1]:22  private addresses, too");
  await run("a1", "remove", "1", "3");
  expect((await rules()).map(({ to }) => to)).toEqual(["*.example.com", "2001:db8::1"]);
  expect((await run("a1", "otherwise", "allow")).stdout).toMatch(/otherwise +allow/);
  await run("a1", "close");
  expect(await perdure.egress("a1")).toMatchObject({ rules: [], otherwise: "deny" });
  await run("a1", "open");
  expect(await perdure.egress("a1")).toMatchObject({ rules: [], otherwise: "allow" });
}, 120_000);

it("takes a whole policy from a file, and says what is wrong with one", async () => {
  const path = join(folder, "policy.json");
  const policy = { rules: [{ action: "allow", to: "pypi.org" }], otherwise: "deny" };
  await writeFile(path, JSON.stringify(policy));
  const { stdout } = await run("a1", "--file", path, "--json");
  expect(JSON.parse(stdout)).toMatchObject(policy);
  await writeFile(path, "{");
  expect(await run("a1", "--file", path)).toMatchObject({ code: 2, stdout: "" });
  await writeFile(path, JSON.stringify({ rules: [{ action: "allow", to: "no name!" }] }));
  const wrong = await run("a1", "--file", path);
  expect(wrong).toMatchObject({ code: 2, stdout: "" });
  expect(wrong.stderr).toContain("rules.0.to");
  expect(await rules()).toEqual(policy.rules);
}, 120_000);

it("lists connections", async () => {
  const { stdout } = await run("a1", "connections");
  const [heading, first, second] = stdout.split("\n");
  expect(heading).toMatch(/^AT +TO +ADDRESS +OUTCOME +RULE +OUT +IN +TIME +WHY$/);
  expect(first).toMatch(/ api\.example\.com:443 +192\.0\.2\.1 +carried +1 +512 B +4 KiB +50 ms/);
  expect(second).toMatch(/ 169\.254\.169\.254:80 +.* denied +- .*"No rule allows it"/);
  const { stdout: json } = await run("a1", "connections", "--json");
  expect(JSON.parse(json)).toHaveLength(2);
}, 120_000);

it.each([
  [["a1", "permit", "x.example"], "Allowed choices are allow, deny"],
  [["a1", "allow"], "needs at least one target"],
  [["a1", "allow", "x.example:99999"], "is no port"],
  [["a1", "deny", "x.example", "--private"], "--private is for allow"],
  [["a1", "open", "x.example"], "takes no targets"],
  [["a1", "otherwise", "maybe"], "followed by allow or deny"],
  [["a1", "remove", "1"], "There is no rule 1"],
  [["a1", "close", "--file", "x"], "does not go with close"],
])("%j is a wrong call", async (words, why) => {
  const { code, stdout, stderr } = await run(...words);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toContain(why);
});
