/**
 * Every verb once, through the built command with `--json`, as a program would drive it; then what it
 * answers to those who call it wrongly. What a verb did is checked on another way: the SDK, the host's
 * process table, the file that came back.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  agentViewSchema,
  checkpointViewSchema,
  doctorReportSchema,
  errorBodySchema,
  healthSchema,
  letOutSchema,
  outputEventSchema,
  processViewSchema,
  wakeReportSchema,
} from "@perdure/protocol";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";

/** The part of a schema that is used here. */
interface Schema<T> {
  parse(value: unknown): T;
}

const under = new DaemonUnderTest();
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "perdure-verbs-"));
  await under.start();
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  expect(await under.end()).toEqual([]);
});

/** Runs a verb that must succeed; stdout is one line of JSON of this shape. */
async function answer<T>(schema: Schema<T>, ...args: string[]): Promise<T> {
  const { code, stdout, stderr } = await under.perdure([...args, "--json"]);
  expect(code, `${args.join(" ")}: ${stderr}`).toBe(0);
  return schema.parse(JSON.parse(stdout));
}

/** Runs a verb that must be refused; stdout is empty, stderr is one `ErrorBody`. */
async function refusal(...args: string[]): Promise<{ code: string; exit: number | null }> {
  const { code, stdout, stderr } = await under.perdure(args);
  expect({ args, stdout }).toEqual({ args, stdout: "" });
  return { code: errorBodySchema.parse(JSON.parse(stderr)).code, exit: code };
}

describe("a life of an agent on the command line", () => {
  test("create answers the agent, awake in generation 1, with the sizes asked for", async () => {
    const agent = await answer(agentViewSchema, "create", "life", "--on-crash", "disk");
    expect(agent).toMatchObject({ name: "life", state: "awake", generation: 1, onCrash: "disk" });
    expect(agent.shape.memoryBytes).toBe(512 * 1024 * 1024);
    expect(under.vmPids().length).toBeGreaterThanOrEqual(1);
  });

  test("list and show answer the same view", async () => {
    const [listed] = await answer(agentViewSchema.array(), "list", "--prefix", "li");
    expect(listed).toEqual(await answer(agentViewSchema, "show", "life"));
    expect(listed).toEqual(await answer(agentViewSchema, "show", listed?.id ?? ""));
    expect(await answer(agentViewSchema.array(), "list", "--state", "asleep")).toEqual([]);
  });

  test("exec prints events, and its exit code is the program's", async () => {
    const line = "echo out; echo err >&2; pwd; echo $COLOUR; exit 7";
    const args = ["exec", "life", "--json", "--cwd", "/tmp", "-e", "COLOUR=red"];
    const { code, stdout } = await under.perdure([...args, "--", "/bin/bash", "-c", line]);
    expect(code).toBe(7);
    const events = stdout
      .trimEnd()
      .split("\n")
      .map((one) => outputEventSchema.parse(JSON.parse(one)));
    const printed = (stream: string): string =>
      events
        .map((event) => (event.type === "output" && event.stream === stream ? event.data : ""))
        .map((data) => Buffer.from(data, "base64").toString())
        .join("");
    expect(printed("stdout")).toBe("out\n/tmp\nred\n");
    expect(printed("stderr")).toBe("err\n");
    expect(events.at(-1)).toEqual({ type: "exit", exitCode: 7, signal: null, timedOut: false });
  });

  test("exec forwards stdin, detaches, attaches and ends a program by its time-out", async () => {
    const cat = await under.perdure(["exec", "life", "/bin/cat"], "through\n");
    expect(cat).toMatchObject({ code: 0, stdout: "through\n" });
    const detached = await under.perdure(["exec", "life", "-d", "/bin/bash", "-c", "echo first"]);
    const again = await under.perdure(["exec", "life", "--attach", detached.stdout.trim()]);
    expect(again).toMatchObject({ code: 0, stdout: "first\n" });
    const late = await under.perdure(["exec", "life", "--timeout", "300ms", "/bin/sleep", "600"]);
    expect(late.code).toBe(137);
    const processes = await answer(processViewSchema.array(), "processes", "life");
    expect(processes.filter(({ running }) => running)).toEqual([]);
    expect(processes.at(-1)?.exit?.timedOut).toBe(true);
  });

  test("cp copies a file in and out, byte for byte, with its mode", async () => {
    const bytes = Buffer.from(Array.from({ length: 300_001 }, (_, at) => (at * 31) & 0xff));
    const [there, back] = [join(folder, "there"), join(folder, "back")];
    writeFileSync(there, bytes, { mode: 0o750 });
    const copied = { parse: (value: unknown) => value as { bytes: number } };
    expect(await answer(copied, "cp", there, "life:/home/user/")).toEqual({ bytes: bytes.length });
    expect(await under.sh("life", "stat -c '%a %U %s' /home/user/there")).toBe("750 user 300001");
    expect(await answer(copied, "cp", "life:/home/user/there", back)).toEqual({
      bytes: bytes.length,
    });
    expect(readFileSync(back).equals(bytes)).toBe(true);
    expect(statSync(back).mode & 0o777).toBe(0o750);
  });

  test("checkpoint keeps a named one, and checkpoints lists it", async () => {
    const taken = await answer(checkpointViewSchema, "checkpoint", "life", "--name", "kept");
    expect(taken).toMatchObject({ kind: "named", name: "kept", memory: true, disk: "clean" });
    const listed = await answer(checkpointViewSchema.array(), "checkpoints", "life");
    expect(listed).toContainEqual(taken);
  });

  test("sleep, wake and report: no process while asleep, then the next generation", async () => {
    await under.sh("life", "echo kept > /dev/shm/ram");
    const asleep = await answer(agentViewSchema, "sleep", "life");
    expect(asleep).toMatchObject({ state: "asleep", generation: 1, failure: null });
    const { agent, report } = await answer(letOutSchema, "wake", "life");
    expect(agent).toMatchObject({ state: "awake", generation: 2 });
    expect(report).toMatchObject({ route: "wake", generation: 2, previousGeneration: 1 });
    expect(await answer(wakeReportSchema, "report", "life")).toEqual(report);
    expect(await under.sh("life", "cat /dev/shm/ram")).toBe("kept");
  });

  test("stop, start and recover: the disk is kept, the memory is not", async () => {
    await under.sh("life", "echo disk > /home/user/disk; echo ram > /dev/shm/ram");
    expect(await answer(agentViewSchema, "stop", "life")).toMatchObject({ state: "stopped" });
    const started = await answer(letOutSchema, "start", "life");
    expect(started.report).toMatchObject({ route: "cold-start", generation: 3 });
    expect(await under.sh("life", "cat /home/user/disk; ls /dev/shm")).toBe("disk");
    await answer(agentViewSchema, "sleep", "life");
    const recovered = await answer(letOutSchema, "recover", "life", "--from", "checkpoint");
    expect(recovered.report).toMatchObject({ route: "recover", generation: 4 });
  });

  test("doctor answers findings, and its exit code says whether the host is ready", async () => {
    const { code, stdout } = await under.perdure(["doctor", "--json"]);
    const { ready, findings } = doctorReportSchema.parse(JSON.parse(stdout));
    expect(code).toBe(ready ? 0 : 1);
    expect(findings.length).toBeGreaterThan(0);
  });

  test("daemon: status, stop, one started by the next command, one in the foreground", async () => {
    const status = await answer(healthSchema, "daemon", "status");
    expect(status).toMatchObject({ home: under.home, pid: under.pid });
    await under.sh("life", "echo adopted > /dev/shm/ram");
    const ended = { parse: (value: unknown) => value as { pid: number } };
    expect(await answer(ended, "daemon", "stop")).toEqual({ pid: status.pid });
    await under.gone();
    expect(await refusal("daemon", "status", "--json")).toEqual({
      code: "daemon_unreachable",
      exit: 1,
    });

    expect(await answer(agentViewSchema.array(), "list")).toMatchObject([{ state: "awake" }]);
    const second = await answer(healthSchema, "daemon", "status");
    expect(second.pid).not.toBe(status.pid);
    expect(await answer(ended, "daemon", "stop")).toEqual({ pid: second.pid });

    const foreground = spawn(process.execPath, [resolve("packages/cli/bin/perdure.mjs"), "serve"], {
      env: { ...process.env, PERDURE_HOME: under.home },
      stdio: "ignore",
    });
    const exited = new Promise((settled) => foreground.once("exit", settled));
    await until("the daemon in the foreground", async () => {
      const { code } = await under.perdure(["daemon", "status", "--json"]);
      return code === 0;
    });
    const kept = await under.perdure(["exec", "life", "/bin/cat", "/dev/shm/ram"]);
    expect(kept).toMatchObject({ code: 0, stdout: "adopted\n" });
    foreground.kill("SIGTERM");
    expect(await exited).toBe(0);
    await under.start();
  });

  test("remove answers the agent, removed, and nothing of it is left", async () => {
    const { id } = await answer(agentViewSchema, "show", "life");
    expect(await answer(agentViewSchema, "remove", "life")).toMatchObject({ state: "removed" });
    expect(await answer(agentViewSchema.array(), "list")).toEqual([]);
    expect(() => statSync(join(under.home, "agents", id))).toThrow(/ENOENT/);
    expect(await refusal("show", "life", "--json")).toEqual({ code: "agent_not_found", exit: 1 });
  });
});

describe("calls that are wrong", () => {
  const verbs = [
    ...["create", "list", "show", "checkpoints", "processes", "exec", "cp", "sleep", "wake"],
    ...["stop", "start", "recover", "remove", "checkpoint", "report", "doctor", "daemon"],
  ];

  test("help of the program and of every verb exits 0 and shows how it is used", async () => {
    const texts = await Promise.all(
      [[], ...verbs.map((verb) => [verb])].map((verb) => under.perdure([...verb, "--help"])),
    );
    for (const { code, stdout } of texts) {
      expect(code).toBe(0);
      expect(stdout).toContain("Usage: perdure");
    }
  });

  test("usage errors exit 2 with a typed error on stderr", async () => {
    const wrong = [
      ["nonsense"],
      ["create"],
      ["create", "a1", "a2"],
      ["create", "a1", "--memory", "12x"],
      ["create", "a1", "--cpus", "none"],
      ["create", "a1", "--on-crash", "shrug"],
      ["list", "--state", "dreaming"],
      ["show"],
      ["exec"],
      ["exec", "a1", "--attach", "zero"],
      ["cp", "here", "there"],
      ["cp", "a1:/here", "a1:/there"],
      ["recover", "a1", "--from", "memory"],
      ["wake", "a1", "--sideways"],
    ];
    for (const args of wrong) {
      expect(await refusal(args[0] ?? "", "--json", ...args.slice(1))).toEqual({
        code: "bad_request",
        exit: args[0] === "exec" ? 125 : 2,
      });
    }
  });

  test("bad names, sizes, paths and ids get a typed error and change nothing", async () => {
    await under.client.create({ name: "still" });
    const before = await under.client.listPage();
    const id = before.agents[0]?.id ?? "";
    const other = `${id.slice(0, -1)}${id.endsWith("0") ? "1" : "0"}`;
    const wrong: [code: string, ...args: string[]][] = [
      ["bad_request", "create", "Upper"],
      ["bad_request", "create", "hyphen-"],
      ["bad_request", "create", "a".repeat(64)],
      ["bad_request", "create", "../../etc"],
      ["agent_exists", "create", "still"],
      ["bad_request", "create", "small", "--memory", "1M"],
      ["bad_request", "create", "large", "--memory", "9T"],
      ["bad_request", "create", "odd", "--memory", "536870913"],
      ["bad_request", "create", "many", "--cpus", "99"],
      ["bad_request", "create", "thin", "--disk", "1G"],
      ["image_not_found", "create", "bare", "--image", "no-such-image"],
      ["image_not_found", "create", "climb", "--image", "../../../etc"],
      ["agent_not_found", "show", "nobody"],
      ["agent_not_found", "show", other],
      ["bad_request", "show", "no/slash"],
      ["agent_not_found", "wake", "nobody"],
      ["agent_not_found", "remove", other],
      ["agent_state", "recover", "still"],
      ["bad_request", "checkpoint", "still", "--name", "No Good"],
      ["user_not_found", "exec", "still", "-u", "nobodyatall", "/bin/true"],
      ["path_not_found", "exec", "still", "--cwd", "/no/such", "/bin/true"],
      ["exec_failed", "exec", "still", "/no/such/program"],
      ["process_not_found", "exec", "still", "--attach", "4000000"],
      ["path_not_found", "cp", "still:/no/such", "-"],
      ["path_is_directory", "cp", "still:/etc", join(folder, "etc")],
      ["path_denied", "cp", "still:/etc/shadow", join(folder, "shadow")],
      ["path_not_found", "cp", join(folder, "missing"), "still:/home/user/x"],
      ["path_not_found", "cp", import.meta.filename, "still:/no/such/x"],
      ["path_denied", "cp", import.meta.filename, "still:/etc/x"],
      ["bad_request", "cp", import.meta.filename, "still:/home/user/../../etc/x"],
    ];
    const told = [];
    for (const [, verb = "", ...rest] of wrong) {
      told.push(await refusal(verb, "--json", ...rest));
    }
    expect(told.map(({ code }, at) => [code, ...(wrong[at] ?? []).slice(1)])).toEqual(wrong);
    expect(told.map(({ exit }) => exit)).toEqual(
      wrong.map(([code, verb]) => {
        if (verb === "exec") return code === "exec_failed" ? 127 : 125;
        return code === "bad_request" ? 2 : 1;
      }),
    );
    expect(await under.client.listPage()).toEqual(before);
    expect(await under.sh("still", "ls /home/user; ls /etc/x 2>&1 | wc -l")).toBe("1");
    for (const name of ["etc", "shadow"]) {
      expect(() => statSync(join(folder, name))).toThrow(/ENOENT/);
    }
  });
});
