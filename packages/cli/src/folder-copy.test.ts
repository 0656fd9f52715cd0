/** Folders into an agent, by the built command, against the real API; programs inside are programs of this host. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Perdure, PerdureError } from "@perdure/sdk";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
/** More than is copied before anybody looks; takes no room. */
const BIG_BYTES = 64 * 1024 ** 3;
let folder: string;
let inside: string;
let fake: FakeServer;
let perdure: Perdure;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-folder-copy-"));
  inside = join(folder, "inside");
  mkdirSync(inside);
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  // Folders of the fake agent are in memory; its programs are in those of this host.
  const execute = fake.commands.execute.bind(fake.commands);
  fake.commands.execute = async (command) => {
    if (command.kind === "makeFolder") mkdirSync(command.path, { recursive: true });
    return execute(command);
  };
  perdure = new Perdure({ socketPath: fake.socketPath });
  await perdure.create({ name: "a1" });
  await perdure.makeFolder("a1", inside, { parents: true });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

const env = () => ({ ...process.env, PERDURE_HOME: folder, PERDURE_AUTOSTART: "0" });

it("a copy whose connection breaks off says to copy again, and nothing of an offset", async () => {
  const hint = "Attach again from offset 10240.";
  fake.commands.output = () =>
    Promise.reject(new PerdureError("interrupted", "The connection ended", { hint }));
  const args = [bin, "cp", "--recursive", `a1:${inside}`, join(folder, "out")];
  const child = spawn(process.execPath, args, { env: env(), stdio: ["ignore", "ignore", "pipe"] });
  const said = await text(child.stderr);
  expect(said).toContain("Hint: Copy it again.");
  expect(said).not.toContain("offset");
});

it("a copy whose caller was killed leaves no program inside, and nothing of what it copied", async () => {
  const source = join(folder, "source");
  mkdirSync(source);
  writeFileSync(join(source, "big"), "");
  truncateSync(join(source, "big"), BIG_BYTES);
  const args = [bin, "cp", "--recursive", source, `a1:${join(inside, "copy")}`];
  const child = spawn(process.execPath, args, { env: env(), stdio: "ignore" });
  const begun = (): boolean => {
    const [draft] = readdirSync(inside);
    return draft !== undefined && existsSync(join(inside, draft, "big"));
  };
  await expect.poll(begun, { interval: 10 }).toBe(true);
  child.kill("SIGKILL");
  await once(child, "exit");
  const running = async (): Promise<boolean[]> =>
    (await perdure.processes("a1")).map((one) => one.running);
  await expect.poll(running).toEqual([false]);
  expect(readdirSync(inside)).toEqual([]);
});
