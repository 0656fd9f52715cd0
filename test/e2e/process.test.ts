/** Programs in an agent: their end, their output, their tree, their input, and what they are given. */
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Perdure, type ExecOptions, type Output, type ProcessHandle } from "@perdure/sdk";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const MIB = 1024 * 1024;
const cli = resolve("packages/cli/bin/perdure.mjs");

describe("programs in an agent", () => {
  const under = new DaemonUnderTest();
  const { client } = under;

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "p" });
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  function exec(argv: readonly string[], options: ExecOptions = {}): Promise<ProcessHandle> {
    return under.client.exec("p", argv, options);
  }
  function shell(line: string, options: ExecOptions = {}): Promise<ProcessHandle> {
    return exec(["/bin/bash", "-c", line], options);
  }
  /** Pids inside whose command line has `mark`, as the guest's /proc tells. */
  async function marked(mark: string): Promise<string[]> {
    const line = `pgrep -f '[${mark.charAt(0)}]${mark.slice(1)}' || true`;
    const out = await under.sh("p", line);
    return out === "" ? [] : out.split("\n");
  }

  test("C40 exit comes after the last byte, not while the program runs with its output closed", async () => {
    const line =
      "echo early; sleep 0.5; echo late; exec 1>&- 2>&-; sleep 2; touch /dev/shm/ran; exit 3";
    const events = await collect(await shell(line, { user: "root" }));
    expect(events.at(-1)).toMatchObject({ type: "exit", exitCode: 3, signal: null });
    expect(events.filter(({ type }) => type === "exit")).toHaveLength(1);
    expect(stdoutOf(events)).toBe("early\nlate\n");
    // Two seconds lay between the last byte and the end: an early exit would find no file.
    expect(await under.sh("p", "ls /dev/shm/ran")).toBe("/dev/shm/ran");
  });

  test("C40 all of 3 MiB comes before the exit code, whole and in order", async () => {
    const line = `import hashlib, os, sys
block = os.urandom(65536)
digest = hashlib.sha256()
for i in range(48):
    data = i.to_bytes(4, "big") + block[4:]
    digest.update(data)
    sys.stdout.buffer.write(data)
sys.stdout.flush()
sys.stderr.write(digest.hexdigest())
sys.exit(7)`;
    const result = await under.client.run("p", ["/usr/bin/python3", "-c", line]);
    expect([result.exitCode, result.cutBytes]).toEqual([7, 0]);
    expect(result.stdout.length).toBe(3 * MIB);
    const digest = createHash("sha256").update(result.stdout).digest("hex");
    expect(digest).toBe(text(result.stderr));
  });

  test("C40 a child in the background that keeps the pipe neither holds back the exit nor is ended", async () => {
    const begun = performance.now();
    const handle = await shell("sleep 987 & echo started; exit 4");
    const events = await collect(handle);
    expect(events.at(-1)).toMatchObject({ type: "exit", exitCode: 4 });
    expect(stdoutOf(events)).toBe("started\n");
    expect(performance.now() - begun).toBeLessThan(60_000);
    expect(await marked("sleep 987")).toHaveLength(1);
    await under.sh("p", "pkill -f '[s]leep 987'");
  });

  test("C40 a child that goes on writing after its parent's end is heard before the exit", async () => {
    const line = "(for i in 1 2 3 4 5 6; do echo tick $i; done; sleep 0.02; echo last) & exit 5";
    const events = await collect(await shell(line));
    expect(events.at(-1)).toMatchObject({ type: "exit", exitCode: 5 });
    expect(stdoutOf(events)).toContain("tick 6\n");
  });

  test("C40 a reader that comes after the end gets all of it, and the exit last", async () => {
    const handle = await shell("echo out; echo err >&2; exit 6");
    await handle.wait();
    const events = await collect(handle);
    expect(events.at(-1)).toMatchObject({ type: "exit", exitCode: 6 });
    expect(stdoutOf(events)).toBe("out\n");
    const second = await collect(handle, 4);
    expect(second.filter(({ type }) => type === "output")).not.toEqual([]);
    expect(second[0]).toMatchObject({ offset: 4 });
  });

  test("C41 output over the limit keeps head and tail and says what was cut", async () => {
    const total = MIB;
    const line = `for my $n (1 .. ${total / 16}) { printf("%015d\\n", $n) }`;
    const handle = await exec(["/usr/bin/perl", "-e", line], { logBytes: 65_536 });
    await until("the program to end unread", async () => {
      const entry = (await client.processes("p")).find((one) => one.process === handle.process);
      return entry?.running === false;
    });
    const events = await collect(handle);
    expect(events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1])).toEqual([
      "output",
      "cut",
      "output",
      "exit",
    ]);
    const cut = events.find((event) => event.type === "cut");
    if (cut === undefined) throw new Error("Nothing was cut");
    const head = stdoutOf(events.slice(0, events.indexOf(cut)));
    const tail = stdoutOf(events.slice(events.indexOf(cut)));
    expect(head.length).toBe(cut.from);
    expect(head.length + (cut.to - cut.from) + tail.length).toBe(total);
    expect(head.length).toBeGreaterThanOrEqual(65_536 / 8);
    expect(head.length + tail.length).toBeLessThanOrEqual(65_536);
    expect(head.startsWith("000000000000001\n")).toBe(true);
    expect(tail.endsWith(`${String(total / 16).padStart(15, "0")}\n`)).toBe(true);
    // Not one byte of what is there is out of place.
    const whole = Array.from(
      { length: total / 16 },
      (_, i) => `${String(i + 1).padStart(15, "0")}\n`,
    );
    expect(whole.join("").startsWith(head)).toBe(true);
    expect(whole.join("").slice(cut.to)).toBe(tail);
  });

  test("C41 a collected output over its limit says how many bytes it lacks", async () => {
    const argv = ["/bin/bash", "-c", "head -c 100000 /dev/zero | tr '\\0' a; echo b >&2"];
    const result = await client.run("p", argv, { limitBytes: 1_000 });
    expect(result.stdout.length + result.stderr.length).toBe(1_000);
    expect(result.cutBytes).toBe(100_002 - 1_000);
  });

  /** Children, and grandchildren in sessions of their own that ignore all they can. */
  function tree(mark: string): string {
    const stubborn = `trap "" TERM HUP INT; while :; do sleep 0.2; : ${mark}; done`;
    return `for i in 1 2 3; do setsid bash -c '(${stubborn}) & (${stubborn}) & wait' & done; ${stubborn}`;
  }

  test("C42 a time-out ends the whole tree, also what went into sessions of its own", async () => {
    const handle = await shell(tree("timed-tree"), { timeoutMs: 4_000 });
    await until("the tree to stand", async () => (await marked("timed-tree")).length >= 7);
    const exit = await handle.wait();
    expect(exit).toMatchObject({ timedOut: true, exitCode: null, signal: 9 });
    expect(await marked("timed-tree")).toEqual([]);
  });

  test("C42 a kill answers when the whole tree is gone", async () => {
    const handle = await shell(tree("killed-tree"));
    await until("the tree to stand", async () => (await marked("killed-tree")).length >= 7);
    await handle.signal("SIGKILL");
    expect(await marked("killed-tree")).toEqual([]);
    expect(await handle.wait()).toMatchObject({ signal: 9, timedOut: false });
    expect((await refusal(handle.signal("SIGTERM"))).code).toBe("process_ended");
  });

  test("C42 one program's kill leaves the tree of another alone", async () => {
    const [killed, other] = [await shell(tree("killed-one")), await shell("sleep 986 & wait")];
    await until("both to run", async () => {
      return (await marked("killed-one")).length >= 7 && (await marked("sleep 986")).length > 0;
    });
    await killed.signal("SIGKILL");
    expect(await marked("killed-one")).toEqual([]);
    expect((await marked("sleep 986")).length).toBeGreaterThan(0);
    await other.signal("SIGKILL");
  });

  test("C43 a client that goes takes nothing of another, and who comes again reads on without gap or repeat", async () => {
    const numbered = `for my $n (1 .. 4000) { print "line $n\\n"; select(undef, undef, undef, 0.002) }`;
    const argv = ["/usr/bin/perl", "-e", `$| = 1; ${numbered}`];
    const [mine, others] = [await exec(argv), await exec(argv)];
    // A client of another program's output, of the same connection pool, in the same moment.
    const whole = collect(others);
    const gone = new Perdure({ socketPath: under.socket });
    let got = "";
    for (let time = 0; ; time++) {
      const client = time === 0 ? gone : new Perdure({ socketPath: under.socket });
      const away = new AbortController();
      let ended = false;
      try {
        const from = { offset: got.length, signal: away.signal };
        let enough = got.length + 3_000;
        for await (const event of client.process("p", mine.process).output(from)) {
          if (event.type === "output") {
            expect(event.offset).toBe(got.length);
            got += text(event.bytes);
          }
          ended = event.type === "exit";
          if (got.length < enough) continue;
          enough = Infinity;
          // In one way or another: the call is given up, or the whole client is.
          if (time % 2 === 0) away.abort();
          else break;
        }
      } catch (error) {
        if (!away.signal.aborted) throw error;
      }
      await client.close();
      if (ended) break;
      expect((await under.client.processes("p")).map(({ process }) => process)).toContain(
        mine.process,
      );
    }
    const printed = Array.from({ length: 4_000 }, (_, i) => `line ${i + 1}\n`).join("");
    expect(got === printed).toBe(true);
    expect(stdoutOf(await whole) === printed).toBe(true);
  });

  test("C43 a command that is killed ends neither its program nor that of another", async () => {
    const marks = ["sleep 9411", "sleep 9412"];
    const commands = marks.map((mark) =>
      spawn(process.execPath, [cli, "exec", "p", ...mark.split(" ")], {
        env: { ...process.env, PERDURE_HOME: under.home },
        stdio: "ignore",
      }),
    );
    for (const mark of marks) {
      await until(`${mark} inside`, async () => (await marked(mark)).length === 1);
    }
    const pids = await Promise.all(marks.map(marked));
    for (const command of commands) {
      const ended = once(command, "exit");
      command.kill("SIGKILL");
      await ended;
      expect(await Promise.all(marks.map(marked))).toEqual(pids);
    }
    await under.sh("p", "pkill -f '[s]leep 941'");
  });

  test("stdin of 5 MiB comes back equal", async () => {
    const sent = randomBytes(5 * MIB);
    const handle = await exec(["/bin/cat"], { stdin: true });
    const [received] = await Promise.all([collect(handle), handle.writeStdin(sent, { end: true })]);
    const bytes = Buffer.concat(
      received.flatMap((event) => (event.type === "output" ? [event.bytes] : [])),
    );
    expect(bytes.equals(sent)).toBe(true);
    expect(received.at(-1)).toMatchObject({ type: "exit", exitCode: 0 });
  });

  test("stdin of 5 MiB comes back equal through the command line", async () => {
    const sent = randomBytes(5 * MIB * 0.75).toString("base64");
    const { code, stdout } = await under.perdure(["exec", "p", "cat"], sent);
    expect(code).toBe(0);
    expect(stdout === sent).toBe(true);
  });

  test("stdin that a program closed is told to its writer; without stdin a program reads nothing", async () => {
    const handle = await exec(["/bin/true"], { stdin: true });
    await handle.wait();
    const refused = await refusal(handle.writeStdin(randomBytes(MIB)));
    expect(["stdin_closed", "process_ended"]).toContain(refused.code);
    const { exitCode, stdout } = await client.run("p", ["/bin/cat"]);
    expect([exitCode, stdout.length]).toEqual([0, 0]);
  });

  test("signals reach the program, or its tree, and its exit says by which it ended", async () => {
    const trap = "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.1; done";
    const handle = await shell(trap);
    const events: Output[] = [];
    for await (const event of handle.output()) {
      events.push(event);
      if (stdoutOf(events) === "ready\n") await handle.signal("SIGUSR1", { tree: false });
    }
    expect(stdoutOf(events)).toBe("ready\ngot\n");
    expect(events.at(-1)).toMatchObject({ type: "exit", exitCode: 9, signal: null });
    const ended = await client.run("p", ["/bin/bash", "-c", "kill -SEGV $$"]);
    expect([ended.exitCode, ended.signal]).toEqual([null, 11]);
    expect((await refusal(client.process("p", 999_999).signal("SIGTERM"))).code).toBe(
      "process_not_found",
    );
  });

  test("users, folders and variables are as asked, and nothing else is passed on", async () => {
    const env = { GREETING: "hello  world", EMPTY: "", PATH: "/bin:/usr/bin" };
    const facts = await client.run("p", ["/bin/sh", "-c", "id -un; id -u; id -G; pwd; env"], {
      user: "root",
      cwd: "/var/tmp",
      env,
    });
    const lines = text(facts.stdout).trimEnd().split("\n");
    expect(lines.slice(0, 4)).toEqual(["root", "0", "0", "/var/tmp"]);
    const names = lines.slice(4).map((line) => line.slice(0, line.indexOf("=")));
    expect(lines).toEqual(
      expect.arrayContaining(["GREETING=hello  world", "EMPTY=", "HOME=/root"]),
    );
    const known = ["EMPTY", "GREETING", "HOME", "LOGNAME", "PATH", "PWD", "SHELL", "USER"];
    expect(names.filter((name) => !known.includes(name))).toEqual([]);
    expect(await under.sh("p", "id -u; pwd", "user")).toBe("1000\n/home/user");
    const unknown = await refusal(exec(["/bin/true"], { user: "nobody-here" }));
    expect(unknown.code).toBe("user_not_found");
    const nowhere = await refusal(exec(["/bin/true"], { cwd: "/no/such/folder" }));
    expect(nowhere.code).toBe("path_not_found");
  });

  test("a program that cannot be started is a typed error that says why", async () => {
    const missing = await refusal(exec(["/no/such/program"]));
    expect(missing.code).toBe("exec_failed");
    expect(missing.message).toBe(
      'Cannot run "/no/such/program": ENOENT: No such file or directory',
    );
    expect((await refusal(exec(["no-such-program"]))).code).toBe("exec_failed");
    expect((await refusal(exec(["/etc"]))).code).toBe("exec_failed");
    expect((await refusal(exec(["/etc/hostname"]))).code).toBe("exec_failed");
    expect((await refusal(exec([]))).code).toBe("bad_request");
    const { code, stderr } = await under.perdure(["exec", "--json", "p", "/no/such/program"]);
    expect(code).toBe(127);
    expect(stderr).toContain("exec_failed");
  });

  test("arguments up to the limits work or are refused with a code, and nothing breaks", async () => {
    const { pid } = await client.health();
    const count = ["/bin/bash", "-c", 'echo $#; printf %s "$*" | wc -c', "bash"];
    const rest = 1_024 - count.length;
    const many = await client.run("p", [...count, ...Array<string>(rest).fill("x")]);
    expect(text(many.stdout)).toBe(`${rest}\n${2 * rest - 1}\n`);
    const over = [...count, ...Array<string>(rest + 1).fill("x")];
    expect((await refusal(exec(over))).code).toBe("bad_request");
    const long: readonly (readonly string[])[] = [
      ["a".repeat(50 * 1024)],
      ["a".repeat(100 * 1024)],
      Array<string>(20).fill("b".repeat(10 * 1024)),
      ["ü".repeat(40 * 1024)],
    ];
    for (const arguments_ of long) {
      const outcome = await client.run("p", [...count, ...arguments_]).then(
        ({ stdout }) => text(stdout),
        (error: unknown) => error,
      );
      if (typeof outcome === "string") {
        const bytes = Buffer.byteLength(arguments_.join(" "));
        expect(outcome).toBe(`${arguments_.length}\n${bytes}\n`);
      } else {
        expect(outcome).toMatchObject({
          code: expect.stringMatching(/^(bad_request|too_large|exec_failed)$/) as string,
        });
      }
    }
    const wide = { BIG: "e".repeat(60 * 1024), ALSO: "f".repeat(60 * 1024) };
    const environment = await client.run("p", ["/bin/true"], { env: wide }).then(
      ({ exitCode }) => exitCode,
      (error: unknown) => (error as { code?: unknown }).code,
    );
    expect([0, "bad_request", "too_large", "exec_failed"]).toContain(environment);
    expect((await refusal(exec(["/bin/echo", "a\0b"]))).code).toBe("bad_request");
    expect(await under.sh("p", "echo well")).toBe("well");
    expect((await client.health()).pid).toBe(pid);
    expect((await client.show("p")).generation).toBe(1);
  });
});

async function collect(handle: ProcessHandle, offset = 0): Promise<Output[]> {
  const events: Output[] = [];
  for await (const event of handle.output({ offset })) events.push(event);
  return events;
}

function stdoutOf(events: readonly Output[]): string {
  return events
    .flatMap((event) => (event.type === "output" && event.stream === "stdout" ? [event.bytes] : []))
    .map((bytes) => text(bytes))
    .join("");
}
