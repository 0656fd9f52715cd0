/**
 * Programs that wait inside come due at the right wall time although the agent slept. The host's wall
 * clock is put forward by an hour while the agent sleeps: a daemon started with another `Date.now`.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";

const MINUTE_S = 60;
const HOUR_S = 3600;
/** A daemon for which it is so much later, and the host's time stamp counter is so much faster. */
function later(seconds: number, counter = 1): Record<string, string> {
  const preload = `
    import { promises } from "node:fs";
    import { syncBuiltinESMExports } from "node:module";
    const now = Date.now.bind(Date);
    Date.now = () => now() + ${seconds * 1000};
    const read = promises.readFile;
    promises.readFile = async (path, ...more) => {
      const text = await read(path, ...more);
      if (path !== "/proc/cpuinfo") return text;
      return text.replaceAll(/(?<=^bogomips\\s*: )[\\d.]+/gm, (mips) => String(mips * ${counter}));
    };
    syncBuiltinESMExports();`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(preload)}` };
}
/** What comes due while the agent sleeps, and what comes due half a minute after. */
const DUE_S = 1800;
const REST_S = HOUR_S + 30;
/** No wait may end at another time than this: the criterion, and four times for emulation. */
const LATE_MS = 2_000 * 4;

/** Says on standard error how each wait of its own went, in one line: name, wall clock at begin and end. */
const waits = `
import asyncio, ctypes, os, select, struct, sys, threading, time
seconds = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def timerfd():
    fd = libc.timerfd_create(1, 0)
    libc.timerfd_settime(fd, 0, struct.pack("qqqq", 0, 0, seconds, 0), None)
    os.read(fd, 8)
def epoll():
    poller = select.epoll()
    poller.poll(seconds)
kinds = {
    "time.sleep": lambda: time.sleep(seconds),
    "asyncio": lambda: asyncio.run(asyncio.sleep(seconds)),
    "select": lambda: select.select([], [], [], seconds),
    "poll": lambda: select.poll().poll(seconds * 1000),
    "epoll": epoll,
    "event": lambda: threading.Event().wait(seconds),
    "timerfd": timerfd,
}
def run(name, wait):
    began = time.time()
    wait()
    with open("/dev/shm/done", "a") as done: print(name, seconds, began, time.time(), file=done)
for item in kinds.items(): threading.Thread(target=run, args=item).start()
`;

const shellWaits = (seconds: number): string => `
wait_for() {
  local name=$1; shift
  local began=$(date +%s.%N)
  "$@"
  echo "$name ${seconds} $began $(date +%s.%N)" >> /dev/shm/done
}
mkfifo /dev/shm/nobody-${seconds}
exec 9<> /dev/shm/nobody-${seconds}
(wait_for sleep sleep ${seconds}) &
(wait_for read read -t ${seconds} -u 9) &
(wait_for timeout timeout ${seconds} sleep infinity) &
python3 /home/user/waits.py ${seconds} &
`;
const KINDS = 10;

interface Done {
  readonly name: string;
  readonly seconds: number;
  /** End minus the time it was due, milliseconds of the wall clock. */
  readonly lateMs: number;
}

/** From a look at the ticks until the workload of a falling-asleep agent is frozen, generously. */
const AWAKE_BEFORE_SLEEP_S = 20;

/** 500 programs that tick once a second, and count where others can see it. */
const tickers = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  int file = open("/dev/shm/ticks", O_RDWR | O_CREAT, 0644);
  ftruncate(file, 500 * 4);
  volatile unsigned *ticks = mmap(0, 500 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  for (int i = 0; i < 500; i++) {
    if (fork() != 0) continue;
    for (;;) {
      sleep(1);
      ticks[i]++;
    }
  }
  pause();
}
`;

function compiled(source: string): Uint8Array {
  const folder = mkdtempSync(join(tmpdir(), "perdure-e2e-"));
  try {
    const file = join(folder, "program");
    execFileSync("gcc", ["-static", "-O1", "-s", "-o", file, "-x", "c", "-"], { input: source });
    return readFileSync(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function ticks(agent: string): Promise<number[]> {
  const text = await under.sh(agent, "od -An -v -w4 -tu4 /dev/shm/ticks");
  const counts = text.split("\n").map(Number);
  expect(counts).toHaveLength(500);
  return counts;
}

/**
 * Puts it to sleep with its wait recorded; the ticks of just before. On a busy host a guest of 500 programs may
 * be too slow to tell of its waits in time, which costs no sleep.
 */
async function sleepWithWait(agent: string): Promise<number[]> {
  for (let tries = 0; tries < 10; tries++) {
    const before = await ticks(agent);
    if ((await under.client.sleep(agent)).waitDueMs !== null) return before;
    await under.client.wake(agent);
  }
  throw new Error("The wait inside was never recorded");
}

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

async function done(agent: string): Promise<Done[]> {
  const text = await under.sh(agent, "cat /dev/shm/done 2>/dev/null || true");
  return text
    .split("\n")
    .filter(Boolean)
    .map((line) => {
      const [name = "", seconds, began, ended] = line.split(" ");
      const late = Number(ended) - Number(began) - Number(seconds);
      return { name, seconds: Number(seconds), lateMs: late * 1000 };
    });
}

/** Monotonic clock, and the one that would count a suspended kernel's time too, in milliseconds. */
async function clocks(agent: string): Promise<{ monotonicMs: number; suspendedMs: number }> {
  const script =
    "import time; m = time.clock_gettime(1); b = time.clock_gettime(7); print(m * 1000, (b - m) * 1000)";
  const line = await under.sh(agent, `python3 -c '${script}'`);
  const [monotonicMs = NaN, suspendedMs = NaN] = line.split(" ").map(Number);
  return { monotonicMs, suspendedMs };
}

describe("programs that wait for a time while the agent sleeps", () => {
  test("whatever runtime they are of, what came due ends at the wake and the rest keeps its time", async () => {
    const { client } = under;
    await client.create({ name: "waiter" });
    await client.writeFile("waiter", "/home/user/waits.py", waits, { user: "user" });
    for (const seconds of [DUE_S, REST_S]) {
      await under.sh("waiter", `{ ${shellWaits(seconds)} } > /dev/null 2>&1 < /dev/null`, "user");
    }
    // Every one of them waits: three of the shell, seven threads of Python.
    const waiting = "cat /proc/[0-9]*/task/*/comm | grep -cE '^(python3|sleep|timeout)$'";
    await until("all to wait", async () => Number(await under.sh("waiter", waiting)) >= 22);
    const before = await clocks("waiter");
    expect(await done("waiter")).toEqual([]);
    await client.sleep("waiter");
    await under.restart(later(HOUR_S));

    const { report } = await under.client.wake("waiter");
    expect(report?.awayMs).toBeGreaterThan(HOUR_S * 1000);
    expect(report?.checks).toContainEqual(
      expect.objectContaining({ check: "clock-advance", outcome: "passed" }),
    );
    expect(report?.checks.map(({ check }) => check)).not.toContain("clock-waits");
    const after = await clocks("waiter");
    expect(after.monotonicMs - before.monotonicMs).toBeGreaterThan(HOUR_S * 1000);
    expect(after.suspendedMs).toBeCloseTo(before.suspendedMs, -1);
    await until("what is due to have ended", async () => (await done("waiter")).length >= KINDS);
    const ended = await done("waiter");
    expect(ended.map(({ seconds }) => seconds)).toEqual(ended.map(() => DUE_S));
    // They ended when the agent was let out: their time had come while it slept.
    const overdueMs = (HOUR_S - DUE_S) * 1000;
    for (const { name, lateMs } of ended) {
      expect(lateMs, name).toBeGreaterThan(overdueMs - LATE_MS);
      expect(lateMs, name).toBeLessThan(overdueMs + 60_000);
    }
    await until("the rest to have ended", async () => (await done("waiter")).length >= 2 * KINDS);
    const rest = (await done("waiter")).filter(({ seconds }) => seconds === REST_S);
    expect(rest).toHaveLength(KINDS);
    for (const { name, lateMs } of rest) {
      expect(lateMs, name).toBeGreaterThan(-1000);
      expect(lateMs, name).toBeLessThan(LATE_MS);
    }
  });

  test("on a host whose counter runs at another rate its clock runs right, and waits keep their rest", async () => {
    await under.client.create({ name: "moved" });
    await under.sh("moved", "sleep 100000 > /dev/null 2>&1 < /dev/null &", "user");
    const source = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource";
    expect(await under.sh("moved", source)).toBe("tsc");
    await under.client.sleep("moved");

    await under.restart({ ...later(2 * HOUR_S, 0.9) });
    const away = (await under.client.wake("moved")).report;
    expect(away?.checks).toContainEqual(
      expect.objectContaining({ check: "clock-source", outcome: "notice" }),
    );
    expect(away?.checks).toContainEqual(
      expect.objectContaining({ check: "clock-advance", outcome: "passed" }),
    );
    expect(await under.sh("moved", source)).toBe("acpi_pm");
    const [before, began] = [await clocks("moved"), performance.now()];
    await new Promise((next) => setTimeout(next, 3000));
    const [after, passed] = [await clocks("moved"), performance.now() - began];
    // By a counter of nine tenths of the rate it would be a tenth less, and is not.
    expect(Math.abs((after.monotonicMs - before.monotonicMs) / passed - 1)).toBeLessThan(0.5);
    await under.client.sleep("moved");

    await under.restart(later(3 * HOUR_S));
    const home = (await under.client.wake("moved")).report;
    expect(home?.checks).toContainEqual(
      expect.objectContaining({ check: "clock-source", outcome: "passed" }),
    );
    expect(home?.checks).toContainEqual({
      check: "clock-advance",
      outcome: "notice",
      detail:
        "Waits inside last longer by the time away: its kernel keeps time by acpi_pm, which cannot be moved.",
    });
    expect(await under.sh("moved", source)).toBe("tsc");
    await under.client.remove("moved");
  });

  test("C02 an agent with 500 tickers wakes as soon after ten hours as after ten minutes, each ticks once", async () => {
    await under.client.create({ name: "ticker" });
    await under.client.writeFile("ticker", "/home/user/tickers", compiled(tickers), {
      user: "user",
      mode: 0o755,
    });
    // Ticks are no waits that anybody is woken for; with one that is, the time away counts.
    const programs = "{ /home/user/tickers & sleep 100000000 & } > /dev/null 2>&1 < /dev/null";
    await under.sh("ticker", programs, "user");
    await until("all to tick", async () => (await ticks("ticker")).every((count) => count > 0));
    const tookMs = new Map<number, number>();
    // Never back: tests before this one have left the host hours late.
    let shiftS = 3 * HOUR_S;
    for (const awayS of [10 * MINUTE_S, 10 * HOUR_S, 10 * MINUTE_S, 10 * HOUR_S]) {
      const before = await sleepWithWait("ticker");
      await under.restart(later((shiftS += awayS)));
      const beganMs = performance.now();
      const { report } = await under.client.wake("ticker");
      const total = report?.phases.total ?? Number.POSITIVE_INFINITY;
      tookMs.set(awayS, Math.min(total, tookMs.get(awayS) ?? Number.POSITIVE_INFINITY));
      const after = await ticks("ticker");
      // One for the time away, one that was about to come, and those of the time that the agent was awake.
      const awakeS = (performance.now() - beganMs) / 1000;
      for (const [i, count] of after.entries()) {
        expect(count - (before[i] ?? 0)).toBeLessThan(awakeS + 2 + AWAKE_BEFORE_SLEEP_S);
      }
      expect(after.some((count, i) => count > (before[i] ?? 0))).toBe(true);
      expect(report?.checks).toContainEqual(
        expect.objectContaining({ check: "clock-advance", outcome: "passed" }),
      );
    }
    const [short = NaN, long = NaN] = [tookMs.get(10 * MINUTE_S), tookMs.get(10 * HOUR_S)];
    console.log(`a wake took ${short} ms after ten minutes and ${long} ms after ten hours`);
    expect(long).toBeLessThan(1.5 * short);
  });
});
