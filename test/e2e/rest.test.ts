/**
 * Agents that rest by themselves, on real VMs. Witnesses: the host's process table, files inside, the guest's
 * own clock. Idle times are short here; what is asserted is order, never how long something took.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { crash, machinesOf, refusal } from "./host-view.ts";

const IDLE_MS = 4_000;
const PATIENCE_MS = 120_000;
/** Two seconds, times four for emulation. */
const DUE_ERROR_MS = 8_000;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

const state = async (name: string): Promise<string> => (await under.client.show(name)).state;
const asleep = (name: string) =>
  until(`agent ${name} to fall asleep`, async () => (await state(name)) === "asleep", PATIENCE_MS);

test("C30 an idle agent sleeps, a busy one and a held one do not, and a call wakes it", async () => {
  const { client } = under;
  await client.create({ name: "r1", idleAfterMs: IDLE_MS });
  await under.sh("r1", "echo kept > /dev/shm/kept");
  await asleep("r1");
  expect(under.vmPids()).toHaveLength(1); // The spare.
  expect((await client.why("r1")).reasons).toMatchObject([{ reason: "idle" }]);
  expect(await under.sh("r1", "cat /dev/shm/kept")).toBe("kept");

  const busy = await client.exec("r1", ["/bin/sh", "-c", "while :; do :; done"]);
  await until(
    "the busy program to be seen",
    async () => (await client.why("r1")).reasons.some(({ reason }) => reason === "busy"),
    PATIENCE_MS,
  );
  const { id } = await client.hold("r1", { forMs: 600_000, reason: "a test" });
  await busy.signal("SIGKILL");
  await until(
    "the hold to be all that keeps it awake",
    async () => (await client.why("r1")).reasons.every(({ reason }) => reason === "hold"),
    PATIENCE_MS,
  );
  expect(await state("r1")).toBe("awake");
  await client.endHold("r1", id);
  await asleep("r1");
});

test("C31 whoever only looks keeps nothing awake, and wakes nothing", async () => {
  const { client } = under;
  const { id } = await client.create({ name: "r7", idleAfterMs: IDLE_MS });
  const { generation } = await client.show("r7");
  const following = new AbortController();
  const followed = (async () => {
    let count = 0;
    for await (const event of client.events({ signal: following.signal }))
      count += event.kind.length;
    return count;
  })();
  const look = async (): Promise<void> => {
    await client.health();
    await client.listPage();
    await client.why("r7");
    await client.checkpoints("r7");
    await client.report("r7");
  };
  await until(
    "the agent that is looked at to fall asleep",
    async () => {
      await look();
      return (await state("r7")) === "asleep";
    },
    PATIENCE_MS,
  );
  for (let i = 0; i < 50; i++) await look();
  expect(machinesOf(under, id)).toEqual([]);
  expect(await client.show("r7")).toMatchObject({ state: "asleep", generation });
  following.abort();
  await followed.catch(() => undefined);
  await client.remove("r7");
});

test("C21 no sleep that was due runs once a caller is let in", async () => {
  const { client } = under;
  const idleAfterMs = 1_500;
  const { id } = await client.create({ name: "r8", idleAfterMs });
  for (let round = 0; round < 8; round++) {
    await under.sh("r8", "true");
    // From well before the sleep is due until it is under way or over: the call may come at any of these.
    await new Promise((next) => setTimeout(next, idleAfterMs - 400 + round * 150));
    const caller = await client.exec("r8", ["/bin/sh", "-c", "echo in; read line"], {
      stdin: true,
    });
    const output = caller.output()[Symbol.asyncIterator]();
    expect((await output.next()).value).toMatchObject({ type: "output" });
    const { generation } = await client.show("r8");
    const machines = machinesOf(under, id);
    expect(machines).toHaveLength(1);
    await new Promise((next) => setTimeout(next, idleAfterMs * 2));
    expect(machinesOf(under, id)).toEqual(machines);
    expect(await client.show("r8")).toMatchObject({ state: "awake", generation });
    await caller.writeStdin("\n", { end: true });
    while (!(await output.next()).done) continue;
  }
  await client.remove("r8");
});

test("C10 an automatic sleep keeps what a manual one keeps: programs, what they have open, memory and disk", async () => {
  const { client } = under;
  await client.create({ name: "r6" });
  // Holds a socket, a pipe, a file that is gone from its folder, and an environment of its own.
  const holder = `import os, socket, signal
s = socket.create_server(("127.0.0.1", 4711)); r, w = os.pipe(); os.write(w, b"in the pipe")
f = open("/home/user/gone", "w+"); f.write("of no name"); f.flush(); os.unlink("/home/user/gone")
open("/dev/shm/ready", "w").close(); signal.pause()`;
  const { process } = await client.exec("r6", ["/usr/bin/python3", "-c", holder], {
    env: { OWN: "kept" },
    cwd: "/var/tmp",
  });
  const echo = await client.exec("r6", ["/bin/sh", "-c", "echo printed; exec sleep 100000"]);
  await under.sh("r6", "head -c 3M /dev/urandom > /dev/shm/random; hostname here");
  await under.sh("r6", "head -c 3M /dev/urandom > /home/user/random; ulimit -c 0");
  const line = `pid=$(pgrep -f '[s]ocket.create_server'); echo $pid; cat /proc/$pid/stat | cut -d' ' -f22
    ls -l /proc/$pid/cwd | sed 's/.*->//'; tr '\\0' '\\n' < /proc/$pid/environ | sort
    for fd in /proc/$pid/fd/*; do readlink $fd; done; cat /proc/$pid/fd/*gone 2>/dev/null
    for fd in /proc/$pid/fd/*; do readlink $fd | grep -q deleted && cat $fd; done
    grep -c ':1267 ' /proc/net/tcp; sha256sum /dev/shm/random /home/user/random; hostname
    cat /proc/sys/kernel/random/boot_id /etc/machine-id; mount | sort; find /dev/shm /home /etc -printf '%p %m %u %s\\n' | sort`;
  await until("the holder", async () => (await under.sh("r6", "ls /dev/shm")).includes("ready"));
  const kept = () => under.sh("r6", line);
  const first = await kept();
  expect(first).toContain("of no name");

  await client.sleep("r6");
  await client.wake("r6");
  const byHand = await kept();
  await client.configure("r6", { idleAfterMs: IDLE_MS });
  await asleep("r6");
  expect((await client.why("r6")).reasons).toMatchObject([{ reason: "idle" }]);
  await client.configure("r6", { idleAfterMs: null });
  await client.wake("r6");
  expect(await kept()).toBe(byHand);
  expect(byHand).toBe(first);
  const running = (await client.processes("r6")).filter((entry) => entry.running);
  expect(running.map((entry) => entry.process)).toEqual([process, echo.process]);
  for await (const event of echo.output()) {
    expect(event).toMatchObject({ type: "output", offset: 0 });
    break;
  }
  await client.remove("r6");
});

test("C33 a program that waits is woken when it is due, across a restart of the daemon", async () => {
  const { client } = under;
  await client.create({ name: "r2", idleAfterMs: IDLE_MS });
  const dueMs = Date.now() + 30_000;
  await client.exec("r2", ["/bin/sh", "-c", "sleep 30 && touch /home/user/done"]);
  await asleep("r2");
  const { waitDueMs } = await client.show("r2");
  expect(Math.abs((waitDueMs ?? 0) - dueMs)).toBeLessThan(5_000);
  await under.restart();
  await until("the agent to be woken", async () => (await state("r2")) === "awake", PATIENCE_MS);
  expect((await under.client.report("r2"))?.route).toBe("wake");
  const done = "stat -c %.Y /home/user/done 2>/dev/null || echo 0";
  await until("what it waited to do", async () => Number(await under.sh("r2", done)) > 0);
  const doneMs = Number(await under.sh("r2", done)) * 1000;
  expect(doneMs).toBeGreaterThan(dueMs - 500);
  expect(doneMs).toBeLessThan(dueMs + DUE_ERROR_MS);
});

test("an owner's word wakes it at its time", async () => {
  const { client } = under;
  await client.create({ name: "r3" });
  await client.sleep("r3");
  await client.configure("r3", { wakeAtMs: Date.now() + 3_000 });
  await until("the agent to be woken", async () => (await state("r3")) === "awake", PATIENCE_MS);
  expect((await client.show("r3")).wakeAtMs).toBeNull();
});

test("periodic checkpoints are taken while something changes, and a crash goes back to the last one", async () => {
  const { client } = under;
  await client.create({ name: "r4", checkpointEveryMs: 2_000 });
  await startCounter(under, "r4");
  const periodic = async () =>
    (await client.checkpoints("r4")).filter(({ kind }) => kind === "periodic");
  await until("a periodic checkpoint", async () => (await periodic()).length > 0, PATIENCE_MS);
  const first = (await periodic())[0];
  await until(
    "the next one",
    async () => ((await periodic())[0]?.createdAtMs ?? 0) > (first?.createdAtMs ?? 0),
    PATIENCE_MS,
  );
  const before = await readCount(under, "r4");
  await crash(under, (await client.show("r4")).id);
  await until("the crash to be seen", async () => (await state("r4")) === "failed");
  const { report } = await client.wake("r4");
  expect(report).toMatchObject({ route: "recover", cut: { kind: "periodic", memory: true } });
  const after = await readCount(under, "r4");
  expect(after.pid).toBe(before.pid);
  await countsOn(under, "r4", after.count);
});

test("a quarantined agent lets nobody in until it is released, and goes on as it was", async () => {
  const { client } = under;
  await client.create({ name: "r5" });
  await startCounter(under, "r5");
  const { pid, count } = await readCount(under, "r5");
  await client.quarantine("r5", "a test");
  expect((await refusal(client.wake("r5"))).code).toBe("agent_quarantined");
  expect((await refusal(client.exec("r5", ["true"]))).code).toBe("agent_quarantined");
  await client.release("r5");
  const after = await readCount(under, "r5");
  expect(after.pid).toBe(pid);
  expect(after.count).toBeGreaterThanOrEqual(count);
});
