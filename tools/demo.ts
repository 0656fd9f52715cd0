/**
 * `npm run demo`: one agent with real work inside goes to disk and comes back, twice: once asked to,
 * once with the daemon killed half-way. Everything shown is measured on this machine, now.
 *
 * Uses a data directory of its own under the system's temporary folder and removes it at the end.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Perdure, type WakeReport } from "@perdure/sdk";

const agent = "demo";
const home = mkdtempSync(join(tmpdir(), "perdure-demo-"));
const perdure = new Perdure({ socketPath: join(home, "run", "perdure.sock") });
const table: [string, string][] = [];
const running: { daemon: ChildProcess | null } = { daemon: null };

const counter = `
import time
n = 0
while True:
    n += 1
    open("/dev/shm/count", "w").write(str(n))
    time.sleep(0.05)
`;
const transaction = `
import signal, sqlite3
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
db = sqlite3.connect("/home/user/shop.db", isolation_level=None)
db.execute("create table orders (item text)")
db.execute("begin immediate")
db.execute("insert into orders values ('half-written when the computer slept')")
print("transaction open", flush=True)
signal.sigwait({signal.SIGUSR1})
db.execute("commit")
print("committed", flush=True)
`;
const repository = `
mkdir -p ~/work && cd ~/work && git init -q . && git config user.email you@example.com && git config user.name You
echo 'def answer(): return 41' > answer.py && git add . && git commit -qm 'First try'
echo 'def answer(): return 42' > answer.py
`;

try {
  await demo();
} finally {
  running.daemon?.kill("SIGKILL");
  for (const pid of vmPids()) process.kill(pid, "SIGKILL");
  rmSync(home, { recursive: true, force: true });
}

async function demo(): Promise<void> {
  say("A data directory of its own, and a daemon");
  await startDaemon();

  say("create: an agent, its own kernel and disk (the first one boots the image into a template)");
  const created = await timed(() => perdure.create({ name: agent }));
  row("create", created.ms);

  say(
    "Real work inside: a git repository with an uncommitted edit, a web server, a count in memory,",
  );
  show("an SQLite transaction that is open");
  await sh(repository);
  await perdure.exec(agent, ["/usr/bin/python3", "-m", "http.server", "8000"], {
    cwd: "/home/user/work",
  });
  await perdure.exec(agent, ["/usr/bin/python3", "-c", counter]);
  const open = await perdure.exec(agent, ["/usr/bin/python3", "-c", transaction]);
  await eventually(async () => (await count()) > 0 && (await sh("ls shop.db-journal")) !== "");
  show(
    await sh(
      "cd work && git status --short && curl -s --retry 30 --retry-connrefused --retry-delay 1 localhost:8000/answer.py",
    ),
  );
  const before = await count();
  show(`the count stands at ${before}`);

  say("sleep: the whole computer goes to disk");
  const slept = await timed(() => perdure.sleep(agent));
  const sleptAtMs = Date.now();
  row("sleep", slept.ms);
  const left = vmPids().filter((pid) => holdsDisk(pid));
  show(`VM processes of this agent: ${left.length}`);
  table.push(["on disk, asleep", kib(slept.value.storedBytes)]);
  await perdure.checkpoints(agent).then((all) => show(`checkpoint ${all.at(-1)?.id ?? ""}`));
  await new Promise((done) => setTimeout(done, 3000));

  say("wake: exactly where it was");
  const woken = await timed(() => perdure.wake(agent));
  row("wake, asked until answered", woken.ms);
  reportRow("wake, until let out", woken.value.report);
  const after = await count();
  show(
    `away for ${((Date.now() - sleptAtMs) / 1000).toFixed(1)} s; the count goes on from ${before}: ${after}`,
  );
  show(
    await sh(
      "cd work && git status --short && curl -s --retry 30 --retry-connrefused --retry-delay 1 localhost:8000/answer.py",
    ),
  );
  await open.signal("SIGUSR1");
  for await (const event of open.output()) {
    if (event.type === "output") show(Buffer.from(event.bytes).toString().trim());
  }
  show(await sh("sqlite3 shop.db 'select * from orders'"));
  const clock = Number(await sh("date +%s%3N"));
  show(
    `its clock and ours differ by less than ${Math.abs(Date.now() - clock) + 1} ms, the call included`,
  );

  say("sleep again, and kill -9 the daemon in the middle of it");
  const asked = perdure.sleep(agent).then(
    () => "it had finished",
    () => "it never answered",
  );
  await eventually(async () => (await perdure.show(agent)).state !== "awake", 5);
  running.daemon?.kill("SIGKILL");
  show(`the sleep: ${await asked}`);
  const recovered = await timed(startDaemon);
  row("a new daemon, everything settled", recovered.ms);
  const found = await perdure.show(agent);
  show(`found: ${found.state}, generation ${found.generation}`);
  const again = await timed(() => perdure.wake(agent));
  row("wake after that", again.ms);
  show(`the count goes on: ${await count()}`);

  say("remove: its key is destroyed first");
  await perdure.remove(agent);
  const ended = new Promise((done) => running.daemon?.once("exit", done));
  await perdure.shutdown();
  await ended;
  show(`VM processes left: ${vmPids().length}`);

  process.stdout.write(`\n${"what".padEnd(36)}measured\n`);
  for (const [what, value] of table) process.stdout.write(`${what.padEnd(36)}${value}\n`);
}

async function startDaemon(): Promise<void> {
  const child = spawn(
    process.execPath,
    [resolve("packages/daemon/bin/perdured.mjs"), "--home", home],
    {
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    },
  );
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4000)));
  running.daemon = child;
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`The daemon ended:\n${log}`);
    return perdure.health().then(
      () => true,
      () => false,
    );
  });
}

async function sh(line: string): Promise<string> {
  const { stdout, exitCode, stderr } = await perdure.run(agent, ["/bin/bash", "-c", line], {
    cwd: "/home/user",
  });
  if (exitCode !== 0) throw new Error(`"${line}" inside failed: ${Buffer.from(stderr).toString()}`);
  return Buffer.from(stdout).toString().trimEnd();
}

async function count(): Promise<number> {
  return Number(await sh("cat /dev/shm/count 2>/dev/null || echo 0"));
}

async function timed<T>(work: () => Promise<T>): Promise<{ value: T; ms: number }> {
  const startMs = performance.now();
  const value = await work();
  return { value, ms: performance.now() - startMs };
}

async function eventually(condition: () => Promise<boolean>, everyMs = 50): Promise<void> {
  const endMs = performance.now() + 60_000;
  while (!(await condition().catch((error: unknown) => rethrowFatal(error)))) {
    if (performance.now() > endMs)
      throw new Error("Waited a minute for something that did not come");
    await new Promise((done) => setTimeout(done, everyMs));
  }
}

function rethrowFatal(error: unknown): false {
  if (error instanceof Error && error.message.startsWith("The daemon ended")) throw error;
  return false;
}

/** Host processes whose command line names this data directory. */
function vmPids(): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
        return command.includes("qemu-system") && command.includes(home);
      } catch {
        return false;
      }
    });
}

/** A spare that waits for the next wake has no disk of an agent open. */
function holdsDisk(pid: number): boolean {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).some((fd) => readlinkSync(`${folder}/${fd}`).includes("/layers/"));
}

function row(what: string, ms: number): void {
  table.push([what, `${ms.toFixed(0)} ms`]);
}

function reportRow(what: string, report: WakeReport | null): void {
  const totalMs = report?.phases["total"];
  if (totalMs !== undefined) row(what, totalMs);
}

function kib(bytes: number): string {
  return `${(bytes / 1024).toFixed(0)} KiB`;
}

function say(text: string): void {
  process.stdout.write(`\n• ${text}\n`);
}

function show(text: string): void {
  for (const line of text.split("\n")) process.stdout.write(`    ${line}\n`);
}
