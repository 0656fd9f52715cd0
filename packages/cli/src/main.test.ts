/** The built command as a child process, against the real API with commands that need no VM. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import {
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { errorBodySchema, PerdureError } from "@perdure/protocol";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeCommands, FakeServer } from "../../../test/contract/api/fake-server.ts";
import { sampleEvent } from "../../../test/contract/state-store-event.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
const fakeDaemon = join(import.meta.dirname, "../../../test/contract/api/fake-daemon.ts");

let folder: string;
let commands: FakeCommands;
let fake: FakeServer;
const env = () => ({
  ...process.env,
  PERDURE_URL: "",
  NODE_OPTIONS: "",
  PERDURE_HOME: folder,
  PERDURE_SOCKET: "",
  PERDURE_AUTOSTART: "0",
  PERDURE_DAEMON: fakeDaemon,
});

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-cli-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  commands = fake.commands;
});
afterEach(async () => {
  await fake.close();
  endLeftDaemons();
  await rm(folder, { recursive: true, force: true });
});

/** Those that a failed test did not end. */
function endLeftDaemons(): void {
  const starts = join(folder, "home", "starts");
  if (!existsSync(starts)) return;
  for (const pid of readFileSync(starts, "utf8").trim().split("\n").map(Number)) {
    const words = `/proc/${pid}/cmdline`;
    if (existsSync(words) && readFileSync(words, "utf8").includes(folder)) process.kill(pid);
  }
}

interface Run {
  code: number | null;
  stdout: string;
  stderr: string;
}
interface Options {
  input?: string | Buffer;
  env?: Record<string, string>;
  node?: string;
  cwd?: string;
  onStdout?: (output: string, kill: (signal: NodeJS.Signals) => void) => void;
}

async function run(args: string[], options: Options = {}): Promise<Run> {
  const child = spawn(options.node ?? process.execPath, [bin, ...args], {
    env: { ...env(), ...options.env },
    cwd: options.cwd ?? folder,
    stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
  });
  child.stdin?.on("error", () => undefined);
  child.stdin?.end(options.input);
  const result: Run = { code: null, stdout: "", stderr: "" };
  child.stdout?.setEncoding("latin1").on("data", (chunk: string) => {
    result.stdout += chunk;
    options.onStdout?.(result.stdout, (signal) => child.kill(signal));
  });
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => (result.stderr += chunk));
  const [code] = (await once(child, "close")) as [number | null];
  return { ...result, code };
}

/** As `run`, and it must have succeeded without a word on stderr but that it waits. */
async function data(args: string[], options: Options = {}): Promise<string> {
  const { code, stdout, stderr } = await run(args, options);
  expect({ code, stderr: stderr.replaceAll(/^[A-Z].* …\n/gm, "") }).toEqual({
    code: 0,
    stderr: "",
  });
  return stdout;
}

const json = (line: string): unknown => JSON.parse(line);

describe("verify", () => {
  it("tells each checkpoint's verdict, and ends with 1 where something is damaged", async () => {
    await data(["create", "a1"]);
    expect(await data(["verify", "a1"])).toBe("There is no checkpoint to verify\n");
    await data(["checkpoint", "a1", "--name", "fine"]);
    const whole = await data(["verify", "a1"]);
    expect(whole).toMatch(/^ID +NAME +KIND +VERDICT +DAMAGE\ncp_\w+ +fine +named +good\n/);
    expect(whole).toMatch(/\n1 good, 0 damaged\n$/);
    await data(["checkpoint", "a1", "--name", "damaged-one"]);
    const { code, stdout } = await run(["verify", "a1"]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/damaged-one +named +damaged +pack pk_1: page 7 does not have/);
    const found = await run(["verify", "a1", "--json", "--checkpoint", "damaged-one"]);
    expect(found).toMatchObject({ code: 1, stderr: "" });
    expect(json(found.stdout)).toMatchObject({
      damaged: 1,
      checkpoints: [{ name: "damaged-one", verdict: "damaged", parts: [{ check: "digest" }] }],
    });
    expect(await data(["verify", "a1", "--checkpoint", "fine", "--json"])).toMatch(/"damaged":0/);
  });
});

describe("export and import", () => {
  it("carry an agent through a file that appears whole, under a passphrase", async () => {
    await data(["create", "a1"]);
    const early = await run(["export", "a1", "--in-clear"]);
    expect(early).toMatchObject({ code: 1, stdout: "" });
    expect(early.stderr).toMatch(/perdure sleep a1/);
    expect(await readdir(folder)).not.toContain("a1.perdure");
    await data(["sleep", "a1"]);
    await writeFile(join(folder, "secret"), "correct horse\n");
    const told = await data(["export", "a1", "--passphrase-file", "secret"]);
    expect(told).toMatch(/^Agent "a1" is in "a1.perdure": 195 KiB, signed by b{64}\n$/);
    expect((await stat(join(folder, "a1.perdure"))).mode & 0o777).toBe(0o600);
    const wrong = await run(["import", "a1.perdure", "--name", "a2"]);
    expect(wrong).toMatchObject({ code: 1, stdout: "" });
    expect(wrong.stderr).toMatch(/does not open with this passphrase/);
    const come = await data([
      "import",
      "a1.perdure",
      "--name",
      "a2",
      "--passphrase-file",
      "secret",
    ]);
    expect(come).toMatch(/^Agent "a2" is asleep: 1 checkpoint of agent "a1", exported .* b{64}\n/);
    expect(come).toMatch(/"perdure wake a2" lets it out/);
  });

  it("go through a pipe, and speak JSON", async () => {
    await data(["create", "a1"]);
    await data(["sleep", "a1"]);
    const { code, stdout, stderr } = await run(["export", "a1", "--in-clear", "-o", "-"]);
    expect(code).toBe(0);
    expect(stdout).toHaveLength(200_000);
    expect(stderr).toMatch(/signed by b{64}/);
    const input = Buffer.from(stdout, "latin1");
    const come = await data(["import", "-", "--name", "a2", "--json"], { input });
    expect(json(come)).toMatchObject({ agent: { name: "a2" }, from: { name: "a1" } });
    const out = await data(["export", "a1", "--in-clear", "-o", "x.perdure", "--json"]);
    expect(json(out)).toEqual({ output: "x.perdure", bytes: 200_000, signer: "b".repeat(64) });
  });

  it("leave no half file where there is no room, or no folder", async () => {
    await data(["create", "a1"]);
    await data(["sleep", "a1"]);
    const nowhere = await run(["export", "a1", "--in-clear", "-o", "no/such/file"]);
    expect(nowhere.code).toBe(1);
    expect(nowhere.stderr).toMatch(/Cannot write "no\/such\/file" on this host: ENOENT/);
    const full = await run(["export", "a1", "--in-clear", "-o", "/dev/full"]);
    expect(full.code).toBe(1);
    expect(full.stderr).toMatch(/ENOSPC[^]*Free some space/);
    expect(await run(["import", "nothing", "--name", "a2"])).toMatchObject({ code: 1, stdout: "" });
    await writeFile(join(folder, "empty"), "\n");
    const empty = await run(["export", "a1", "--passphrase-file", "empty"]);
    expect(empty.stderr).toMatch(/no passphrase/);
    const left = (await readdir(folder)).filter((name) => name.includes("perdure-"));
    expect(left).toEqual([]);
  });
});

describe("agents", () => {
  it("are all listed to whom takes the list slowly", async () => {
    const settings = { image: "debian", onCrash: "checkpoint" } as const;
    const shape = { memoryBytes: 2 ** 29, cpus: 1, diskBytes: 2 ** 33 };
    const create = { kind: "create", tenant: "default", ...settings, shape } as const;
    for (let at = 0; at < 2000; at++) await commands.execute({ ...create, name: `a${at}` });
    // More than is on its way between two processes.
    expect(json(await data(["list", "--json"]))).toHaveLength(2000);
  });

  it("takes an agent through its life, in words", async () => {
    expect(await data(["create", "a1", "--memory", "1G", "--disk", "16G"])).toBe(
      'Agent "a1" is awake: 1 GiB memory, 1 CPU, 16 GiB disk\n',
    );
    expect(await data(["sleep", "a1"])).toBe('Agent "a1" is asleep: 4 KiB stored\n');
    expect(await data(["wake", "a1"])).toBe(
      'Agent "a1" is awake: generation 2, continue, let out in 85 ms\n',
    );
    expect(await data(["checkpoint", "a1", "--name", "x"])).toMatch(
      /^Checkpoint cp_\w+: 1 B added/,
    );
    expect(await data(["checkpoints", "a1"])).toMatch(/named\s+x\s+2/);
    const list = await data(["list"]);
    expect(list).toMatch(/^NAME +STATE +GENERATION/);
    expect(list).toMatch(/\na1 +awake +2 +1 GiB/);
    expect(await data(["show", "a1"])).toMatch(/\nstate +awake\n/);
    expect(await data(["report", "a1"])).toMatch(/verdict +continue\n[^]*manifest +passed/);
    for (const verb of ["stop", "start"]) await data([verb, "a1"]);
    await data(["recover", "a1", "--from", "disk"]);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "recover", from: "disk" });
    expect(await data(["restore", "a1", "before"])).toMatch(/^Agent "a1" is awake: generation/);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "restore", checkpoint: "before" });
    expect(await data(["fork", "a1", "a2", "--checkpoint", "old"])).toMatch(/^Agent "a2" is awake/);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "fork", checkpoint: "old" });
    await data(["checkpoint", "a1", "--name", "old"]);
    expect(await data(["drop", "a1", "old"])).toBe(
      'Checkpoint "old" of agent "a1" is no longer kept\n',
    );
    expect(await data(["remove", "a1"])).toBe('Agent "a1" is removed\n');
    expect(await data(["doctor"])).toContain("This host is ready.");
  });

  it("gives the same as JSON, one value per command", async () => {
    expect(json(await data(["create", "a1", "--json"]))).toMatchObject({ name: "a1" });
    for (const verb of ["sleep", "stop"]) {
      expect(json(await data([verb, "a1", "--json"]))).toMatchObject({ name: "a1" });
    }
    for (const verb of ["wake", "start", "recover"]) {
      const letOut = json(await data([verb, "a1", "--json"]));
      expect(letOut).toMatchObject({ agent: { name: "a1" }, report: { verdict: "continue" } });
    }
    expect(json(await data(["checkpoint", "a1", "--json"]))).toMatchObject({ kind: "periodic" });
    expect(json(await data(["checkpoints", "a1", "--json"]))).toHaveLength(1);
    expect(json(await data(["list", "--json"]))).toMatchObject([{ name: "a1" }]);
    expect(json(await data(["show", "--json", "a1"]))).toMatchObject({ name: "a1" });
    expect(json(await data(["report", "a1", "--json"]))).toMatchObject({ version: 1 });
    expect(json(await data(["processes", "a1", "--json"]))).toEqual([]);
    expect(json(await data(["doctor", "--json"]))).toMatchObject({ ready: true });
    expect(json(await data(["daemon", "status", "--json"]))).toMatchObject({ home: folder });
  });

  it("lists a checkpoint that was taken without a name as live, and its kind as it is in JSON", async () => {
    await data(["create", "a1"]);
    const view = await commands.execute({ kind: "checkpoint", tenant: "default", agent: "a1" });
    commands.checkpoints = () =>
      Promise.resolve({ checkpoints: [{ ...view, kind: "named", name: null }], next: null });
    expect(await data(["checkpoints", "a1"])).toMatch(/\ncp_\w+ +live +- +1 /);
    expect(json(await data(["checkpoints", "a1", "--json"]))).toMatchObject([{ kind: "named" }]);
  });

  it("says not ready with exit code 1", async () => {
    commands.doctor = () => Promise.resolve({ ready: false, findings: [] });
    expect(await run(["doctor"])).toMatchObject({ code: 1, stdout: "This host is not ready.\n" });
  });
});

describe("images", () => {
  it("are imported from a file and from stdin, shown, listed and removed", async () => {
    await writeFile(join(folder, "app.tar"), "archive");
    const imported = await data(["image", "import", "app.tar", "--name", "app"]);
    expect(imported).toMatch(
      /^Image "app" is [0-9a-f]{12}: disks from 1 GiB\n {2}Device nodes were/,
    );
    const settings = ["--name", "still", "--ref", "app:1", "--no-start"];
    const piped = await data(["image", "import", "-", ...settings, "--json"], { input: "other" });
    expect(json(piped)).toMatchObject({ names: ["still"] });
    const shown = await data(["image", "show", "app"]);
    expect(shown).toMatch(/^entrypoint +"\/app"$/m);
    expect(shown).toMatch(/^imported from +app:1$/m);
    const list = await data(["image", "list"]);
    expect(list).toMatch(/^NAME +ID +FROM +STORED +AGENTS +AGE\n/);
    expect(list).toMatch(/^app +[0-9a-f]{12} +app:1 +300 MiB +0 /m);
    expect(json(await data(["image", "list", "--json"]))).toHaveLength(3);
    expect(await data(["image", "remove", "app"])).toBe('Image "app" is removed\n');
    const again = await run(["image", "show", "app"]);
    expect(again).toMatchObject({ code: 1, stdout: "" });
    expect(again.stderr).toContain('Cannot use image "app"');
  });

  it("are built from a recipe, in a file or on stdin, or as they are", async () => {
    await writeFile(join(folder, "node.json"), '{"packages": ["nodejs"]}');
    const first = await data(["image", "build", "node.json", "--name", "node", "--json"]);
    const second = await data(["image", "build", "-", "--name", "other", "--json"], {
      input: '{"packages": ["nodejs"]}',
    });
    expect(json(second)).toMatchObject({ id: (json(first) as { id: string }).id });
    expect(await data(["image", "remove", "other"])).toBe(
      'Image "other" is still there as "node"\n',
    );
    expect(await data(["image", "build", "debian", "--name", "plain"])).toMatch(
      /^Image "plain" is/,
    );
  });

  it.each<[string[], RegExp]>([
    [["import", "none.tar", "--name", "a"], /Cannot read "none.tar" on this host: ENOENT/],
    [["import", ".", "--name", "a"], /"." *: it is a folder.*tar c -C/s],
    [
      ["import", "-", "--name", "A"],
      /Cannot take --name: it must have 1 to 63 .*perdure image import --help/s,
    ],
    [["build", "bad.json", "--name", "a"], /"bad.json": it is not JSON/],
    [["build", "odd.json", "--name", "a"], /body.recipe.*there is no field "colour"/],
    [["remove", "-x-"], /unknown option|Cannot take <image>/],
  ])("that cannot be made are told why: %s", async (args, words) => {
    await writeFile(join(folder, "bad.json"), "{");
    await writeFile(join(folder, "odd.json"), '{"colour": "red"}');
    const { code, stdout, stderr } = await run(["image", ...args], { input: "archive" });
    expect(code).toBeGreaterThan(0);
    expect(stdout).toBe("");
    expect(stderr).toMatch(words);
  });

  it("that are broken say so, and Ctrl-C ends the work of one that takes long", async () => {
    await writeFile(join(folder, "broken.tar"), "broken");
    const broken = await run(["image", "import", "broken.tar", "--name", "a"]);
    expect(broken.stderr).toContain("Cannot import the archive: it is broken");
    await writeFile(join(folder, "slow.tar"), "slow");
    const child = spawn(process.execPath, [bin, "image", "import", "slow.tar", "--name", "a"], {
      env: env(),
      cwd: folder,
    });
    await new Promise((seen) => child.stderr.once("data", seen));
    await expect.poll(() => fake.images.asked.length).toBe(2);
    child.kill("SIGINT");
    await once(child, "close");
    await expect.poll(() => fake.images.cancelled).toBe(1);
  });
});

describe("failures", () => {
  it("tells message and hint on stderr, exit code 1", async () => {
    const { code, stdout, stderr } = await run(["show", "a9"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toBe(
      'perdure: Cannot find agent "a9"\nHint: "perdure list" shows those that exist\n',
    );
  });

  it("tells programs the whole error as JSON on stderr", async () => {
    const error = new PerdureError("disk_full", "Cannot sleep", { details: { neededBytes: 9 } });
    await data(["create", "a1"]);
    commands.failNext(error);
    const { code, stdout, stderr } = await run(["sleep", "a1", "--json"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(json(stderr)).toEqual(error.toJSON());
  });

  it("says that no daemon answers", async () => {
    const { code, stderr } = await run(["list", "--socket", join(folder, "none.sock")]);
    expect(code).toBe(1);
    expect(stderr).toMatch(/Cannot reach a daemon on ".*none\.sock"[^]*Hint:/);
    const status = await run(["daemon", "status", "--home", join(folder, "none"), "--json"]);
    expect(status.code).toBe(1);
    expect(json(status.stderr)).toMatchObject({ code: "daemon_unreachable" });
  });

  it("says of a daemon that stands still that it does not answer, and waits no longer", async () => {
    const path = join(folder, "still.sock");
    const still = createServer(() => undefined).listen(path);
    await once(still, "listening");
    const runs = [["list"], ["daemon", "status"], ["daemon", "stop"], ["daemon", "start"]];
    const asked = runs.map((args) => run([...args, "--socket", path, "--json"]));
    for (const { code, stderr } of await Promise.all(asked)) {
      expect(code).toBe(1);
      expect(json(stderr)).toMatchObject({ code: "deadline_exceeded" });
    }
    still.close();
  });

  it.each<[string[]]>([
    [[]],
    [["frobnicate"]],
    [["create", "a1", "--memory", "lots"]],
    [["show"]],
    [["create", "a1", "--memory", "3"]],
    [["create", "a1", "--cpus", "0"]],
    [["create", "a1", "--cpus", "99"]],
    [["create", "A_1"]],
    [["list", "--home", ""]],
    [["import", "x", "--name", "a1", "--passphrase-file", "/dev/null"]],
  ])("takes %j for a wrong call: exit code 2, nothing on stdout, nothing done", async (args) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).not.toBe("");
    expect(commands.executed).toEqual([]);
  });

  it("tells programs what was wrong with the call as JSON", async () => {
    const { code, stdout, stderr } = await run(["create", "--json", "a1", "--cpus", "0"]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(errorBodySchema.parse(json(stderr)).code).toBe("bad_request");
  });
});

describe("words", () => {
  it.each([
    [["create", "a1", "--memory", "1M"], /--memory: it must be 128 MiB to 8 GiB in steps of 2 MiB/],
    [["create", "a1", "--disk", "1G"], /--disk: it must be 2 GiB to 1 TiB/],
    [["create", "a1", "--cpus", "9"], /--cpus: it must be 1 to 4/],
    [["create", "A/1"], /<name>: it must have 1 to 63 lower-case letters/],
    [["show", "../x"], /<agent>: it must be an agent's name or id/],
    [["checkpoint", "a1", "--name", "X"], /--name: it must have 1 to 63/],
    [["exec", "a1", "--cwd", "here", "ls"], /--cwd: it must begin with \//],
    [["exec", "a1", "--user", "", "ls"], /--user: it must have 1 to 64 characters/],
    [["exec", "a1", "--timeout", "999d", "ls"], /--timeout: it must be 1ms to 366d/],
  ] as [string[], RegExp][])(
    "of %j name what was typed, and what it allows",
    async (args, words) => {
      const { stdout, stderr } = await run(args);
      expect(stdout).toBe("");
      expect(stderr).toMatch(words);
      expect(stderr).toContain(`Hint: \`perdure ${args[0]} --help\``);
      expect(stderr).not.toMatch(/body|query|path\./);
    },
  );

  it("of a damaged checkpoint name the way that is left", async () => {
    await data(["create", "a1"]);
    commands.failNext(new PerdureError("checkpoint_signature", "Cannot open it"));
    const { stderr } = await run(["wake", "a1"]);
    expect(stderr).toContain("Hint: `perdure recover a1 --from disk` starts it cold");
  });

  it("of a failed agent give its way back as it is", async () => {
    await data(["create", "a1"]);
    const view = await commands.show({ tenant: "default", agent: "a1" });
    const wayBack = '"perdure wake a1" recovers it';
    const failure = { reason: "crashed", message: "The VM ended", wayBack, atMs: 1 };
    commands.show = () => Promise.resolve({ ...view, state: "failed", failure });
    expect(await data(["show", "a1"])).toMatch(/\nway back +"perdure wake a1" recovers it\n/);
    expect(await data(["report", "a1"])).toContain(
      'This is of the last time it was let out. Agent "a1" is failed now (crashed: The VM ended)',
    );
  });

  it("of a wake say where the agent was awake already", async () => {
    await data(["create", "a1"]);
    for (const verb of ["wake", "start"]) {
      expect(await data([verb, "a1"])).toBe('Agent "a1" is awake, and was before: generation 1\n');
    }
  });

  it.each([["list"], ["exec", "a1", "echo", "hello"]])(
    "of output that has no room are no stack trace: %s",
    async (...args) => {
      await data(["create", "a1"]);
      const line = `"${process.execPath}" "${bin}" ${args.join(" ")} > /dev/full`;
      const shell = spawn("sh", ["-c", line], { env: env(), stdio: ["ignore", "ignore", "pipe"] });
      const exited = once(shell, "exit");
      const stderr = await text(shell.stderr);
      const [code] = (await exited) as [number];
      expect(stderr).toMatch(/^perdure: Cannot write the output: ENOSPC.*\nHint: .*\n$/);
      expect(code).toBe(args[0] === "exec" ? 125 : 1);
    },
  );
});

describe("exec", () => {
  beforeEach(async () => {
    await data(["create", "a1"]);
  });

  it.each<[number, string[]]>([
    [125, ["a9", "true"]],
    [125, ["a1"]],
    [125, ["a1", "--timeout", "soon", "true"]],
    [125, ["a1", "--attach", "1", "ls"]],
    [125, ["-d", "-i", "a1", "cat"]],
    [125, ["a1", "--offset", "7", "true"]],
    [125, ["--socket", "/no/such/socket", "a1", "true"]],
    [126, ["a1", "/etc"]],
    [127, ["a1", "/no/such/program"]],
    [127, ["a1", 'no "such" program']],
    [126, ["a1", "/etc/passwd"]],
    [137, ["a1", "sh", "-c", "kill -KILL $$"]],
  ])("ends with %i after %j", async (code, args) => {
    expect(await run(["exec", ...args])).toMatchObject({ code, stdout: "" });
    if (code < 128) expect((await run(["exec", "--json", ...args])).code).toBe(code);
  });

  it("gives the program's output and exit code, each stream to its own", async () => {
    const argv = ["sh", "-c", "printf out; printf err >&2; exit 7"];
    expect(await run(["exec", "a1", ...argv])).toEqual({ code: 7, stdout: "out", stderr: "err" });
    expect(await run(["exec", "a1", "--", ...argv])).toMatchObject({ code: 7 });
    expect(await run(["exec", "a1", "sh", "-c", "kill -TERM $$"])).toMatchObject({ code: 143 });
  });

  it("without a program asks for the image's own, and create can leave that alone", async () => {
    // The fake has no image: what it is asked is what counts.
    await run(["exec", "a1"]);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "exec", argv: [] });
    expect(commands.executed.at(-1)).not.toHaveProperty("user");
    await run(["create", "still", "--no-start"]);
    expect(commands.executed.at(-1)).toMatchObject({ kind: "create", name: "still", start: false });
    await run(["create", "begun"]);
    expect(commands.executed.at(-1)).not.toHaveProperty("start");
  });

  it("takes options before and after the agent, and leaves the program its own", async () => {
    const program = ["sh", "-c", "echo $A $B $0", "--json"];
    const args = ["exec", "--env", "A=1", "a1", "-e", "B=x=y", "--cwd", "/", "--user", "root"];
    expect(await data([...args, ...program])).toBe("1 x=y --json\n");
    expect(commands.executed.at(-1)).toMatchObject({
      argv: program,
      user: "root",
      cwd: "/",
      env: { A: "1", B: "x=y" },
      stdin: false,
    });
  });

  it("says when the time-out ended it", async () => {
    const { code, stderr } = await run(["exec", "a1", "--timeout", "100ms", "sleep", "60"]);
    expect(code).toBe(137);
    expect(stderr).toContain("time-out");
  });

  it("forwards what is piped in, byte for byte", async () => {
    const input = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256));
    const { code, stdout } = await run(["exec", "a1", "cat"], { input });
    expect(code).toBe(0);
    expect(Buffer.from(stdout, "latin1").equals(input)).toBe(true);
  });

  it("ends with the program though stdin stays open", async () => {
    const child = spawn(process.execPath, [bin, "exec", "a1", "true"], {
      env: env(),
      stdio: ["pipe", "inherit", "inherit"],
    });
    const [code] = (await once(child, "exit")) as [number];
    expect(code).toBe(0);
  });

  it.each(["SIGINT", "SIGTERM"] as const)("passes %s to the program", async (signal) => {
    const script = `trap 'printf got; exit 9' INT TERM; printf ready; while :; do sleep 0.05; done`;
    const result = await run(["exec", "a1", "sh", "-c", script], {
      onStdout: (output, kill) => {
        if (output === "ready") kill(signal);
      },
    });
    expect(result).toMatchObject({ code: 9, stdout: "readygot" });
  });

  it("gives up on a program that ignores Ctrl-C, and leaves it running", async () => {
    const script = `trap '' INT; while :; do printf x; sleep 0.05; done`;
    const result = await run(["exec", "a1", "sh", "-c", script], {
      onStdout: (_output, kill) => {
        kill("SIGINT");
      },
    });
    expect(result.code).toBe(130);
    expect(result.stderr).toContain("--attach 1");
    expect(await commands.processes({ tenant: "default", agent: "a1" })).toMatchObject([
      { running: true },
    ]);
  });

  it.each(["SIGINT", "SIGTERM"] as const)(
    "only detaches at %s where it was attached",
    async (signal) => {
      const script = `while :; do printf x; sleep 0.05; done`;
      await run(["exec", "a1", "--detach", "sh", "-c", script]);
      const result = await run(["exec", "a1", "--attach", "1"], {
        onStdout: (_output, kill) => {
          kill(signal);
        },
      });
      expect(result.code).toBe(130);
      expect(await commands.processes({ tenant: "default", agent: "a1" })).toMatchObject([
        { running: true },
      ]);
    },
  );

  it("ends the program when nobody reads its output any more", async () => {
    const line = `"${process.execPath}" "${bin}" exec a1 yes | head -n 2`;
    const shell = spawn("sh", ["-c", line], { env: env(), stdio: ["ignore", "pipe", "inherit"] });
    expect(await text(shell.stdout)).toBe("y\ny\n");
    await expect
      .poll(() => commands.processes({ tenant: "default", agent: "a1" }))
      .toMatchObject([{ running: false, exit: { signal: 13 } }]);
  });

  it("detaches, and attaches again from an offset", async () => {
    const script = "printf abc; sleep 0.3; printf def; exit 5";
    expect(await data(["exec", "a1", "--detach", "sh", "-c", script])).toBe("1\n");
    const attached = await run(["exec", "a1", "--attach", "1", "--offset", "2"]);
    expect(attached).toEqual({ code: 5, stdout: "cdef", stderr: "" });
    const started = json(await data(["exec", "a1", "--detach", "--json", "true"]));
    expect(started).toEqual({ process: 2 });
    const unknown = await run(["exec", "a1", "--attach", "77"]);
    expect(unknown).toMatchObject({ code: 125, stdout: "" });
  });

  it("gives the events of the API as JSON", async () => {
    const { stdout } = await run(["exec", "a1", "--json", "sh", "-c", "printf hi; exit 3"]);
    expect(stdout.trim().split("\n").map(json)).toEqual([
      { type: "output", stream: "stdout", offset: 0, data: "aGk=" },
      { type: "exit", exitCode: 3, signal: null, timedOut: false },
    ]);
  });

  it("says how to go on when the agent sleeps meanwhile", async () => {
    const result = await run(["exec", "a1", "sh", "-c", "printf abc; sleep 60"], {
      onStdout: () => void commands.execute({ kind: "sleep", tenant: "default", agent: "a1" }),
    });
    expect(result).toMatchObject({ code: 125, stdout: "abc" });
    expect(result.stderr).toContain("perdure exec a1 --attach 1 --offset 3");
  });

  it("names no process that a reboot has ended", async () => {
    const original = commands.output.bind(commands);
    commands.output = async (...call) => {
      await original(...call);
      return (async function* () {
        yield await Promise.resolve({
          type: "interrupted" as const,
          reason: "the guest rebooted",
          offset: 0,
        });
      })();
    };
    const { code, stderr } = await run(["exec", "a1", "sleep", "60"]);
    expect(code).toBe(125);
    expect(stderr).toContain("the guest rebooted\nHint: `perdure processes a1`");
  });

  it("says that it waits, on one line, where that takes long", async () => {
    const original = commands.execute.bind(commands);
    commands.execute = async (command) => {
      await new Promise((resolve) => setTimeout(resolve, 1300));
      return original(command);
    };
    const slow = await run(["wake", "a1"]);
    expect(slow).toMatchObject({ code: 0, stderr: 'Waking agent "a1" …\n' });
    expect(await data(["wake", "a1", "--json"])).toContain('"awake"');
  });
});

describe("cp", () => {
  beforeEach(async () => {
    await data(["create", "a1"]);
  });

  it("copies a file in and out with its mode, into folders by name", async () => {
    const bytes = Buffer.alloc(1_000_000, "perdure\n");
    await writeFile(join(folder, "in"), bytes, { mode: 0o750 });
    await data(["cp", "in", "a1:/home/user/"]);
    await data(["cp", "a1:/home/user/in", "out"]);
    expect((await readFile(join(folder, "out"))).equals(bytes)).toBe(true);
    expect((await stat(join(folder, "out"))).mode & 0o777).toBe(0o750);
    await data(["cp", "a1:/home/user/in", "run"]);
    expect((await stat(join(folder, "run", "in"))).size).toBe(bytes.length);
    expect(json(await data(["cp", "in", "a1:/x", "--mode", "600", "--json"]))).toEqual({
      bytes: bytes.length,
    });
  });

  it("copies stdin in and a file to stdout", async () => {
    const input = Buffer.from([0, 1, 255, 10]);
    await data(["cp", "-", "a1:/x"], { input });
    expect(Buffer.from(await data(["cp", "a1:/x", "-"]), "latin1").equals(input)).toBe(true);
    await data(["cp", "-", "a1:/empty"], { input: "" });
    expect(await data(["cp", "a1:/empty", "-"])).toBe("");
  });

  it("writes to what is no file in place of replacing it, and follows a link", async () => {
    await data(["cp", "-", "a1:/x"], { input: "bytes" });
    const pipe = join(folder, "pipe");
    spawnSync("mkfifo", [pipe]);
    const [read] = await Promise.all([readFile(pipe, "utf8"), data(["cp", "a1:/x", "pipe"])]);
    expect(read).toBe("bytes");
    expect((await stat(pipe)).isFIFO()).toBe(true);
    await writeFile(join(folder, "behind"), "before");
    await symlink("behind", join(folder, "link"));
    await data(["cp", "a1:/x", "link"]);
    expect(await readFile(join(folder, "behind"), "utf8")).toBe("bytes");
    expect((await lstat(join(folder, "link"))).isSymbolicLink()).toBe(true);
  });

  it("says how else to copy what is no file", async () => {
    const refused = async (...args: string[]) => (await run(["cp", ...args])).stderr;
    expect(await refused("run", "a1:/x")).toContain('perdure cp --recursive "run" a1:/x');
    spawnSync("mkfifo", [join(folder, "pipe")]);
    expect(await refused("pipe", "a1:/x")).toContain("Hint: Pipe it in: perdure cp - a1:/x");
    commands.readFile = () => Promise.reject(new PerdureError("path_is_directory", "Cannot"));
    expect(await refused("a1:/etc", "x")).toContain("perdure cp --recursive a1:/etc x");
  });

  it("says that only regular files are copied, in either direction, and names the path", async () => {
    const guestSays = new PerdureError(
      "path_not_file",
      'Cannot read "/dev/zero": Invalid argument',
    );
    commands.readFile = () => Promise.reject(guestSays);
    commands.writeFile = () => Promise.reject(guestSays);
    await writeFile(join(folder, "in"), "x");
    for (const [args, action] of [
      [["a1:/dev/zero", "-"], "read"],
      [["in", "a1:/dev/zero"], "write"],
    ] as const) {
      const { code, stdout, stderr } = await run(["cp", ...args, "--json"]);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(json(stderr)).toMatchObject({
        code: "path_not_file",
        message: `Cannot ${action} "/dev/zero" in agent "a1": it is not a regular file, and only those can be copied`,
      });
    }
  });

  it("leaves no part of a copy that failed", async () => {
    await data(["cp", "-", "a1:/x"], { input: "x" });
    commands.readFile = async () => {
      await Promise.resolve();
      const facts = { kind: "file", size: 9, mode: 0o644, uid: 0, gid: 0, mtimeMs: 0 } as const;
      const bytes = async function* (): AsyncGenerator<Uint8Array> {
        yield await Promise.resolve(Buffer.from("half"));
        throw new Error("broken");
      };
      return { facts, bytes: bytes() };
    };
    const before = await readdir(folder);
    expect((await run(["cp", "a1:/x", "out"])).code).toBe(1);
    expect(await readdir(folder)).toEqual(before);
    for (const args of [
      ["cp", "missing", "a1:/x"],
      ["cp", "run", "a1:/x"],
      ["cp", "a1:/x", "no/such/folder"],
    ]) {
      expect((await run(args)).code, args.join(" ")).toBe(1);
    }
  });
});

describe("events", () => {
  const append = (...parts: Parameters<typeof sampleEvent>[0][]): Promise<void> =>
    fake.state.commit(
      parts.map((part) => {
        const event = sampleEvent({ atMs: Date.parse("2200-01-02T03:04:05.678Z"), ...part });
        return { kind: "append-event", event };
      }),
    );

  it("are printed as lines, by agent, kind and position, and as JSON", async () => {
    await append(
      { kind: "let-out", data: { route: "wake", checkpoint: null } },
      { kind: "failed", name: "a2", data: { message: "it\u001b[2J died", reason: "panic" } },
      { kind: "removed", data: {} },
    );
    const lines = (await data(["events"])).trim().split("\n");
    const at = "2200-01-02T03:04:05.678Z";
    expect(lines).toEqual([
      `1  ${at}  one  g3  let-out  route=wake`,
      `2  ${at}  a2  g3  failed  message="it\\u001b[2J died"  reason=panic`,
      `3  ${at}  one  g3  removed`,
    ]);
    expect(await data(["events", "--agent", "a2"])).toBe(`${lines[1]}\n`);
    expect(await data(["events", "--kind", "failed,removed", "--after", "2"])).toBe(
      `${lines[2]}\n`,
    );
    const asJson = (await data(["events", "--json"])).trim().split("\n").map(json);
    expect(asJson).toMatchObject([{ id: 1 }, { id: 2, kind: "failed" }, { id: 3 }]);
    await fake.state.commit([{ kind: "collect-events", sinceMs: 0, countMax: 1 }]);
    expect(await data(["events"])).toMatch(/^\(events 1 to 2 are not kept any more\)\n3 /);
  });

  it("are followed until it is interrupted", async () => {
    await append({}, {});
    const following = run(["events", "--follow", "--after", "1", "--json"], {
      onStdout: (output, kill) => {
        const count = output.split("\n").length - 1;
        if (count === 1) void append({ kind: "failed" });
        if (count === 2) kill("SIGINT");
      },
    });
    const { stdout } = await following;
    expect(stdout.trim().split("\n").map(json)).toMatchObject([
      { id: 2 },
      { id: 3, kind: "failed" },
    ]);
  });

  it.each([
    [["--kind", "nonsense"], /There is no kind "nonsense"; there are created, state/],
    [["--after", "-1"], /must be the id of an event/],
  ])("refuses %j", async (args, words) => {
    const { code, stderr } = await run(["events", ...args]);
    expect(code).toBe(2);
    expect(stderr).toMatch(words);
  });
});

describe("what an owner says of an agent", () => {
  it("is given at create, changed by set, shown, and narrows a list", async () => {
    const labels = ["--label", "team=red", "note=a=b", "--env", "A=1"];
    await data(["create", "a1", ...labels, "--end-after", "2h", "--at-end", "remove"]);
    await data(["create", "a2", "--label", "team=red"]);
    const executed = fake.commands.executed.find(({ kind }) => kind === "create");
    expect(executed).toMatchObject({
      labels: { team: "red", note: "a=b" },
      env: { A: "1" },
      end: { afterMs: 7_200_000, then: "remove" },
    });
    const shown = await data(["show", "a1"]);
    expect(shown).toMatch(/^end +\S+Z: remove$/m);
    expect(shown).toMatch(/^label note +a=b$/m);
    const listed = async (...args: string[]) =>
      (json(await data(["list", "--json", ...args])) as { name: string }[]).map(({ name }) => name);
    expect(await listed("--label", "team=red")).toEqual(["a1", "a2"]);
    expect(await listed("--label", "team=red", "note=a=b")).toEqual(["a1"]);
    await data(["set", "a1", "--end-after", "never", "--label", "team=blue"]);
    expect(await listed("--label", "team=red")).toEqual(["a2"]);
    expect(await data(["show", "a1"])).not.toMatch(/^end /m);
    expect((await run(["create", "a3", "--label", "nothing"])).code).toBe(2);
    expect((await run(["set", "a1", "--at-end", "sleep"])).code).toBe(2);
  });
});

describe("key", () => {
  it("is made once, listed and revoked", async () => {
    const made = await data(["key", "create", "ci", "--scope", "use", "--agent", "a1", "a2"]);
    expect(made).toMatch(/^pdk_[0-9a-z]{26}_[\w-]{43}\n$/);
    const listed = await data(["key", "list"]);
    expect(listed).toMatch(
      /^NAME +ID +SCOPE +AGENTS .*\nci +ak_\w+ +use +a1,a2 +\S+Z +never +never\n$/,
    );
    const views = json(await data(["key", "list", "--json"])) as { expiresAtMs: number | null }[];
    expect(views).toMatchObject([{ name: "ci", expiresAtMs: null }]);
    const before = Date.now();
    const created = json(
      await data(["key", "create", "short", "--scope", "read", "--expires", "2h", "--json"]),
    ) as { key: { expiresAtMs: number } };
    expect(created.key.expiresAtMs).toBeGreaterThanOrEqual(before + 2 * 3_600_000);
    expect(await data(["key", "create", "e2b", "--scope", "admin", "--e2b"])).toMatch(
      /^e2b_[0-9a-f]+\n$/,
    );
    expect(await data(["key", "revoke", "ci"])).toBe('Key "ci" is revoked\n');
    expect((await run(["key", "revoke", "ci"])).stderr).toMatch(/^perdure: No key has the name/);
    expect((await run(["key", "create", "x"])).code).toBe(2);
    expect((await run(["key", "create", "x", "--scope", "root"])).code).toBe(2);
  });

  it("opens a daemon at a URL, which none is started for", async () => {
    await fake.close();
    const tcp = { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] };
    fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder, { tcp });
    const token = (await data(["key", "create", "me", "--scope", "admin"])).trim();
    const url = fake.server.url ?? "";
    const elsewhere = { PERDURE_HOME: join(folder, "home"), PERDURE_AUTOSTART: "" };
    const remote = { env: { ...elsewhere, PERDURE_URL: url, PERDURE_API_KEY: token } };
    await data(["create", "far"], remote);
    expect(await data(["list", "--json"], remote)).toContain('"name":"far"');
    const named = { env: { ...elsewhere, PERDURE_API_KEY: token } };
    expect(await data(["list", "--url", url, "--json"], named)).toContain('"name":"far"');
    const keyless = await run(["list", "--url", url], { env: elsewhere });
    expect(keyless.stderr).toMatch(/^perdure: .*alive.*key.*\nHint: .*PERDURE_API_KEY.*\n$/);
    const nobody = await run(["list", "--url", "http://127.0.0.1:1"], { env: elsewhere });
    expect(nobody).toMatchObject({ code: 1 });
    expect(nobody.stderr).toContain("Hint: Start it there with `perdure serve --listen`.");
    const nonsense = await run(["list", "--url", "nonsense"], { env: elsewhere });
    expect(nonsense.stderr).toMatch(/^perdure: Cannot use "nonsense" as the URL.*\nHint: .*\n$/);
    const inside = await run(["exec", "--url", url, "far", "echo", "hi"], named);
    expect(inside).toMatchObject({ code: 0, stdout: "hi\n" });
    expect(existsSync(join(folder, "home"))).toBe(false);
    // An option that names a socket wins over the environment.
    const socket = join(folder, "run", "perdure.sock");
    const wrong = { env: { ...elsewhere, PERDURE_URL: "http://127.0.0.1:1" } };
    expect(await data(["list", "--socket", socket, "--json"], wrong)).toContain('"name":"far"');
  });
});

describe("daemon", () => {
  const home = (): string => join(folder, "home");
  const starts = async (): Promise<string[]> =>
    (await readFile(join(home(), "starts"), "utf8")).trim().split("\n");
  const auto = () => ({ env: { PERDURE_HOME: home(), PERDURE_AUTOSTART: "" } });

  it("is started once by many at once, goes on after them, and ends when told", async () => {
    const runs = await Promise.all(
      Array.from({ length: 6 }, () => run(["list", "--json"], auto())),
    );
    expect(runs).toEqual(runs.map(() => ({ code: 0, stdout: "[]\n", stderr: "" })));
    expect(await starts()).toHaveLength(1);
    const log = await stat(join(home(), "run", "daemon.log"));
    expect(log.mode & 0o777).toBe(0o600);
    const [pid] = await starts();
    expect(await data(["daemon", "status"], auto())).toContain(`pid ${pid}`);
    expect(await data(["daemon", "start"], auto())).toContain(`pid ${pid}`);
    expect(await data(["daemon", "stop"], auto())).toBe(`Daemon ended: pid ${pid}\n`);
    expect((await run(["daemon", "status"], auto())).code).toBe(1);
    expect(await data(["daemon", "start", "--json"], auto())).toContain(`"home":"${home()}"`);
    await data(["daemon", "stop"], auto());
  });

  it("shows the log's tail when it cannot be started", async () => {
    const { code, stderr } = await run(["list"], {
      env: { ...auto().env, FAKE_DAEMON_FAILS: "1" },
    });
    expect(code).toBe(1);
    expect(stderr).toContain("no KVM, no TCG, no hope");
    expect(stderr).toContain("daemon.log");
    expect(await starts()).toHaveLength(1);
  });

  it.each([
    ["/proc/perdure", 1, /Cannot make the data directory .*ENOENT/],
    ["/sys/perdure/home", 1, /Cannot make the data directory .*(EPERM|EACCES|EROFS)/],
    ["/etc/passwd", 2, /Cannot use "\/etc\/passwd" for the data directory: it is not a folder/],
    ["/etc/passwd/home", 1, /Cannot make the data directory .*ENOTDIR/],
    [`/tmp/perdure-${"x".repeat(100)}`, 2, /its path has more than 107 bytes/],
  ])("says quickly what is wrong with %s as its home", async (path, failed, reason) => {
    for (const [args, code] of [
      [["list"], failed],
      [["exec", "a1", "true"], 125],
      [["serve"], failed],
      [["daemon", "start"], failed],
    ] as const) {
      const result = await run([...args], { env: { ...auto().env, PERDURE_HOME: path } });
      expect(result).toMatchObject({ code, stdout: "" });
      expect(result.stderr).toMatch(/^perdure: .*\nHint: .*PERDURE_HOME.*\n$/);
      expect(result.stderr).toMatch(reason);
    }
    if (path !== "/etc/passwd") expect(existsSync(path)).toBe(false);
  });

  it("is started where its log has no room, and the full disk is told where that fails", async () => {
    await mkdir(join(home(), "run"), { recursive: true });
    await symlink("/dev/full", join(home(), "run", "daemon.log"));
    const { code, stderr } = await run(["list"], {
      env: { ...auto().env, FAKE_DAEMON_FAILS: "1" },
    });
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^(Starting .*\n)?perdure: Cannot start .* no room .*\nHint: Free some.*\n$/,
    );
    expect(await data(["list", "--json"], auto())).toBe("[]\n");
    await data(["daemon", "stop"], auto());
  });

  it("says that its start lock cannot be taken", async () => {
    await mkdir(join(home(), "run", "start.lock"), { recursive: true });
    const { stderr } = await run(["list"], auto());
    expect(stderr).toMatch(/^perdure: Cannot start the daemon .*: EISDIR.*\nHint: .*\n$/);
  });

  it("runs in the foreground until it is ended, with its exit code", async () => {
    const child = spawn(process.execPath, [bin, "serve", "--home", home()], {
      env: env(),
      stdio: "inherit",
    });
    const exited = once(child, "exit");
    await expect.poll(async () => (await run(["daemon", "status", "--home", home()])).code).toBe(0);
    child.kill("SIGTERM");
    expect(await exited).toEqual([0, null]);
    const failing = await run(["serve", "--home", home()], { env: { FAKE_DAEMON_FAILS: "1" } });
    expect(failing.code).toBe(3);
  });
});

describe("launcher", () => {
  const old = (process.env["PATH"] ?? "")
    .split(":")
    .map((path) => join(path, "node"))
    .find((path) => {
      const version = spawnSync(path, ["-p", "process.versions.node"], { encoding: "utf8" }).stdout;
      return /^2[0-3]\./.test(version);
    });

  it.skipIf(old === undefined)(
    "works on an older Node, with its signals and exit codes",
    async () => {
      const node = old ?? "";
      await data(["create", "a1"], { node });
      const script = `trap 'exit 9' INT; printf ready; while :; do sleep 0.05; done`;
      const result = await run(["exec", "a1", "sh", "-c", script], {
        node,
        onStdout: (text, kill) => {
          if (text === "ready") kill("SIGINT");
        },
      });
      expect(result).toMatchObject({ code: 9, stderr: "" });
      expect((await run(["frobnicate"], { node })).code).toBe(2);
    },
  );
});
