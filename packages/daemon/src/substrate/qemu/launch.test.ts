import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Launcher, type Launch, type LaunchedProcess } from "./launch.ts";

let folder: string;
let launcher: Launcher;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-launch-"));
});

afterAll(() => rm(folder, { recursive: true }));

beforeEach(() => {
  launcher = new Launcher();
});

afterEach(() => launcher.close());

/** Runs a shell script as the caller's user; `words` are `$0` and what follows. */
function launch(
  script: string,
  words: readonly string[] = [],
  cgroupFiles: readonly string[] = [],
): Promise<LaunchedProcess> {
  const options: Launch = {
    binary: "/bin/sh",
    arguments: ["-c", script, ...words],
    user: null,
    groups: [],
    cgroupFiles,
  };
  return launcher.launch(options);
}

/** Children of this process that are a shell and have not been told what to become. */
async function waitingShells(): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const read = (file: string) => readFile(`/proc/${name}/${file}`, "latin1").catch(() => "");
    const parent = (await read("stat")).split(") ").at(-1)?.split(" ")[1];
    const isShell = (await read("cmdline")) === "/bin/sh\0";
    if (isShell && Number(parent) === process.pid) found.push(Number(name));
  }
  return found;
}

/** Whether a descriptor of this process is one that every program it starts gets. */
async function isPassedOn(name: string): Promise<boolean> {
  const text = await readFile(`/proc/self/fdinfo/${name}`, "latin1").catch(() => "");
  const flags = /^flags:\s(\d+)$/m.exec(text)?.[1];
  return flags !== undefined && (Number.parseInt(flags, 8) & 0o2000000) === 0;
}

test("arguments reach the program as they are", async () => {
  const words = ["", "a b", "it's", '"$HOME"', "`id`", "a\nb", "\\", "-x", "*", "} exit 7; {", "ä"];
  const out = join(folder, "words");
  const started = await launch('for word; do printf "%s\\0" "$word"; done > "$0"', [out, ...words]);
  expect(await started.exited).toBe("exit code 0");
  expect(await readFile(out, "utf8")).toBe(words.map((word) => `${word}\0`).join(""));
});

test("how a process ended and what it said last is told", async () => {
  const failed = await launch("echo no such disk >&2; exit 3");
  expect(await failed.exited).toBe("exit code 3");
  await expect.poll(() => failed.complaint()).toBe("no such disk");
  const killed = await launch("kill -KILL $$");
  expect(await killed.exited).toBe("killed by SIGKILL");
});

test("a process has its own session and no descriptor but a way to complain", async () => {
  const started = await launch("echo ready >&2; exec sleep 60");
  const { pid } = started.identity;
  await expect.poll(() => started.complaint()).toBe("ready");
  const names = await readdir(`/proc/${pid}/fd`);
  // What whoever started this process leaves open for everyone's children is not meant.
  const passedOn = await Promise.all(names.map(isPassedOn));
  expect(names.filter((name, at) => Number(name) < 3 || !passedOn[at])).toEqual(["0", "1", "2"]);
  for (const name of ["0", "1"])
    expect(await readlink(`/proc/${pid}/fd/${name}`)).toBe("/dev/null");
  expect(await readlink(`/proc/${pid}/cwd`)).toBe("/");
  const session = (await readFile(`/proc/${pid}/stat`, "latin1")).split(") ").at(-1)?.split(" ")[3];
  expect(Number(session)).toBe(pid);
  const status = await readFile(`/proc/${pid}/status`, "latin1");
  expect(status).toMatch(/^NoNewPrivs:\s1$/m);
  expect(status).toMatch(/^Umask:\s0077$/m);
  process.kill(pid, "SIGKILL");
  expect(await started.exited).toBe("killed by SIGKILL");
});

test("it is in its control groups before it is the program, or ends", async () => {
  const groups = [join(folder, "one"), join(folder, "t'wo")];
  for (const file of groups) await writeFile(file, "");
  const started = await launch('cat "$@" >&2', ["sh", ...groups], groups);
  expect(await started.exited).toBe("exit code 0");
  const { pid } = started.identity;
  await expect.poll(() => started.complaint()).toBe(`${pid}\n${pid}`);
  const refused = await launch("exit 0", [], [join(folder, "none", "cgroup.procs")]);
  expect(await refused.exited).toBe("exit code 1");
});

test("several start at once", async () => {
  const started = await Promise.all(Array.from({ length: 5 }, () => launch("sleep 0.1")));
  expect(new Set(started.map(({ identity }) => identity.pid)).size).toBe(5);
  for (const { exited } of started) expect(await exited).toBe("exit code 0");
});

test("one shell waits, is replaced when it was ended, and ends with the launcher", async () => {
  await expect.poll(waitingShells).toHaveLength(1);
  const [first] = await waitingShells();
  if (first === undefined) throw new Error("The shell is gone");
  process.kill(first, "SIGKILL");
  await expect.poll(() => readdir("/proc").then((names) => names.includes(`${first}`))).toBe(false);
  const started = await launch("exit 0");
  expect(await started.exited).toBe("exit code 0");
  await expect.poll(waitingShells).toHaveLength(1);
  await launcher.close();
  await expect.poll(waitingShells).toHaveLength(0);
});

test("a start that the end of the thread meets is refused, and what runs counts as ended", async () => {
  const running = await launch("sleep 60");
  try {
    const starting = launch("sleep 60");
    starting.catch(() => undefined);
    await launcher.close();
    await expect(starting).rejects.toMatchObject({ code: "machine_start_failed" });
    expect(await running.exited).toContain("thread");
  } finally {
    process.kill(running.identity.pid, "SIGKILL");
  }
});
