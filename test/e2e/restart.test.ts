/**
 * The daemon ends in every way there is, and the next one takes over what it left; the whole host goes
 * down; what a record names is not what it was.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Output } from "@perdure/sdk";
import { countsOn, readCount, startCounter } from "./counter.ts";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";
import { ended, isAlive, machineOf, machinesOf } from "./host-view.ts";

interface StoredMachine {
  id: string;
  pid: number;
  startTicks: number;
  hostBootId: string;
}

describe("a daemon that ends", () => {
  const under = new DaemonUnderTest();
  let id = "";
  let counter = 0;
  let printer = 0;

  beforeAll(async () => {
    await under.start();
    id = (await under.client.create({ name: "steady" })).id;
    counter = await startCounter(under, "steady");
    const lines = "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.5; done";
    printer = (await under.client.exec("steady", ["/bin/sh", "-c", lines])).process;
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  const endings: Readonly<Record<string, () => Promise<void>>> = {
    SIGINT: () => under.kill("SIGINT"),
    SIGTERM: () => under.kill("SIGTERM"),
    SIGHUP: () => under.kill("SIGHUP"),
    SIGKILL: () => under.kill("SIGKILL"),
    "SIGKILL to its process group": async () => {
      process.kill(-(under.pid ?? 0), "SIGKILL");
      await under.gone();
    },
  };

  test.each(Object.keys(endings))(
    "C2A after %s the next daemon adopts the running VM",
    async (how) => {
      const { client } = under;
      const { generation } = await client.show("steady");
      const machine = machineOf(under, id);
      const before = await readCount(under, "steady");
      await endings[how]?.();
      expect(isAlive(machine)).toBe(true);
      await under.start();
      const agent = await under.client.show("steady");
      expect([agent.state, agent.generation]).toEqual(["awake", generation]);
      expect(machineOf(under, id)).toBe(machine);
      const after = await readCount(under, "steady");
      expect(after.pid).toBe(before.pid);
      // It went on while no daemon was there: at least a count in each of many reads' time.
      expect(after.count).toBeGreaterThan(before.count);
      await countsOn(under, "steady", after.count);
      const running = (await under.client.processes("steady")).filter((entry) => entry.running);
      expect(running.map((entry) => entry.process)).toEqual(
        expect.arrayContaining([counter, printer]),
      );
    },
  );

  test("C2A output of a process is read on over a restart without a gap or a repeat", async () => {
    const seen: string[] = [];
    let offset = 0;
    for (let part = 0; part < 2; part++) {
      const wanted = seen.length + 4;
      for await (const event of under.client.process("steady", printer).output({ offset })) {
        if (event.type !== "output") break;
        expect(event.offset).toBe(offset);
        offset += event.bytes.length;
        seen.push(
          ...text(event.bytes)
            .split("\n")
            .filter((line) => line !== ""),
        );
        if (seen.length >= wanted) break;
      }
      if (part === 0) await under.restart();
    }
    expect(seen).toEqual(seen.map((_, i) => `line ${i + 1}`));
  });

  test("C2A a reader is told where to go on when the daemon is asked to end", async () => {
    const events: Output[] = [];
    const ending: Promise<void>[] = [];
    for await (const event of under.client.process("steady", printer).output()) {
      if (events.push(event) === 1) ending.push(under.kill("SIGTERM"));
    }
    await Promise.all(ending);
    expect(events[0]).toMatchObject({ type: "output" });
    expect(events.at(-1)).toMatchObject({ type: "interrupted", reason: "daemon" });
    await under.start();
  });

  test("C2A a VM left stopped in the middle of a sleep goes on, and the agent is awake", async () => {
    const machine = machineOf(under, id);
    const before = await readCount(under, "steady");
    await under.restart({ PERDURE_CRASH: "sleep.paused:daemon" });
    await under.client.sleep("steady").catch(() => undefined);
    await under.gone();
    expect(isAlive(machine)).toBe(true);
    await under.start();
    expect((await under.client.show("steady")).state).toBe("awake");
    expect(machineOf(under, id)).toBe(machine);
    const after = await readCount(under, "steady");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "steady", after.count);
  });

  test("C2A a sleep that was published before the daemon died is finished", async () => {
    const machine = machineOf(under, id);
    const before = await readCount(under, "steady");
    const { generation } = await under.client.show("steady");
    await under.restart({ PERDURE_CRASH: "sleep.published:daemon" });
    await under.client.sleep("steady").catch(() => undefined);
    await under.gone();
    await under.start();
    expect((await under.client.show("steady")).state).toBe("asleep");
    await ended(machine);
    expect(machinesOf(under, id)).toEqual([]);
    const { agent } = await under.client.wake("steady");
    expect(agent.generation).toBe(generation + 1);
    const after = await readCount(under, "steady");
    expect(after.pid).toBe(before.pid);
    await countsOn(under, "steady", Math.max(before.count, after.count));
  });

  test("C2A SIGTERM in the middle of a sleep leaves the agent awake or asleep, never between", async () => {
    const sleeping = under.client.sleep("steady").then(
      () => "asleep",
      () => "awake",
    );
    await until("the sleep to begin", async () => {
      return (await under.client.show("steady")).state !== "awake";
    });
    await under.kill("SIGTERM");
    const answered = await sleeping;
    await under.start();
    const { state } = await under.client.show("steady");
    expect(["awake", "asleep"]).toContain(state);
    if (answered === "asleep") expect(state).toBe("asleep");
    expect(machinesOf(under, id)).toHaveLength(state === "awake" ? 1 : 0);
    await under.client.wake("steady");
    await countsOn(under, "steady", (await readCount(under, "steady")).count);
  });

  test("C2A a second daemon on the same data directory is refused, and the first goes on", async () => {
    const machine = machineOf(under, id);
    const second = await runDaemon(under.home, ["--socket", join(under.home, "second.sock")]);
    expect(second.code).toBe(1);
    expect(second.stderr).toContain("daemon_running");
    expect((await under.client.health()).pid).toBe(under.pid);
    expect(machineOf(under, id)).toBe(machine);
    await countsOn(under, "steady", (await readCount(under, "steady")).count);
  });

  test("a daemon refuses data of a newer version, says so, and changes nothing", async () => {
    const machine = machineOf(under, id);
    await under.kill();
    const version = edit(under, (database) => {
      const { user_version } = database.prepare("PRAGMA user_version").get() ?? {};
      database.exec("PRAGMA user_version = 4711");
      return Number(user_version);
    });
    const refused = await runDaemon(under.home, []);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("data_too_new");
    expect(refused.stderr).toContain("version is 4711");
    expect(refused.stderr).toContain("newer daemon");
    expect(isAlive(machine)).toBe(true);
    edit(under, (database) => database.exec(`PRAGMA user_version = ${version}`));
    await under.start();
    expect(machineOf(under, id)).toBe(machine);
  });

  test("C23 a stranger whose pid stands in a record is left alone, also one that bears the VM's name", async () => {
    const homeId = readFileSync(join(under.home, "home-id"), "utf8").trim();
    await under.client.checkpoint("steady");
    const machine = machineOf(under, id);
    await under.kill();
    process.kill(machine, "SIGKILL");
    await ended(machine);
    let vm = "";
    const decoys: ChildProcess[] = [];
    try {
      editMachine(under, "steady", (record) => {
        vm = record.id;
        return record;
      });
      const name = ["-name", `perdure-${homeId}-${vm}`];
      for (const args of [[], name]) {
        decoys.push(
          spawn("/usr/bin/perl", ["-e", "sleep 600", "--", ...args], { stdio: "ignore" }),
        );
      }
      for (const decoy of decoys) {
        const pid = decoy.pid ?? 0;
        await until("the decoy to run", () => commandOf(pid).includes("sleep 600"));
        editMachine(under, "steady", (record) => ({
          ...record,
          pid,
          startTicks: startTicks(pid),
        }));
        await under.start();
        expect((await under.client.show("steady")).state).toBe("failed");
        expect(isAlive(pid)).toBe(true);
        await under.client.wake("steady");
        expect(isAlive(pid)).toBe(true);
        await under.kill();
        for (const own of under.vmPids()) {
          process.kill(own, "SIGKILL");
          await ended(own);
        }
      }
      for (const decoy of decoys) expect(isAlive(decoy.pid ?? 0)).toBe(true);
    } finally {
      for (const decoy of decoys) decoy.kill("SIGKILL");
    }
    await under.start();
    expect((await under.client.show("steady")).state).toBe("failed");
    await under.client.remove("steady");
  });
});

describe("a host that goes down", () => {
  const under = new DaemonUnderTest();

  beforeAll(() => under.start());
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test("C2C sleeping agents wake with their memory, awake ones are failed and recover", async () => {
    const { client } = under;
    for (const name of ["asleep", "awake", "fresh", "off"]) await client.create({ name });
    for (const name of ["asleep", "awake"]) await startCounter(under, name);
    await under.sh("off", "echo kept > /home/user/kept", "user");
    await client.stop("off");
    await under.sh("fresh", "echo kept > /home/user/kept && sync", "user");
    const asleepAt = await readCount(under, "asleep");
    await client.sleep("asleep");
    await client.checkpoint("awake");
    const awakeAt = await readCount(under, "awake");

    await under.kill();
    for (const pid of under.vmPids()) {
      process.kill(pid, "SIGKILL");
      await ended(pid);
    }
    rmSync(join(under.home, "run"), { recursive: true, force: true });
    const otherBoot = "00000000-1111-4222-8333-444444444444";
    for (const name of ["awake", "fresh"]) {
      editMachine(under, name, (record) => ({ ...record, hostBootId: otherBoot }));
    }
    for (const path of globSync(join(under.home, "{agents,tenants}/**/verified.json"))) {
      const record = readFileSync(path, "utf8");
      expect(record).toContain('"hostBootId"');
      writeFileSync(
        path,
        record.replaceAll(/"hostBootId":"[^"]*"/g, `"hostBootId":"${otherBoot}"`),
      );
    }

    await under.start();
    expect(existsSync(under.socket)).toBe(true);
    const states: Record<string, string> = {};
    for await (const agent of under.client.list()) states[agent.name] = agent.state;
    expect(states).toEqual({ asleep: "asleep", awake: "failed", fresh: "failed", off: "stopped" });
    for (const name of ["awake", "fresh"]) {
      expect((await under.client.show(name)).failure?.reason).toBe("crashed");
    }

    await under.client.wake("asleep");
    const woken = await readCount(under, "asleep");
    expect(woken.pid).toBe(asleepAt.pid);
    await countsOn(under, "asleep", Math.max(asleepAt.count, woken.count));

    const recovered = await under.client.wake("awake");
    expect(recovered.report).toMatchObject({ route: "recover", cut: { memory: true } });
    const again = await readCount(under, "awake");
    expect(again.pid).toBe(awakeAt.pid);
    await countsOn(under, "awake", again.count);

    const cold = await under.client.wake("fresh");
    expect(cold.report).toMatchObject({ route: "recover", cut: { memory: false } });
    expect(await under.sh("fresh", "cat /home/user/kept")).toBe("kept");
    await under.client.start("off");
    expect(await under.sh("off", "cat /home/user/kept")).toBe("kept");
  });

  test("C2C a machine of another boot is not taken for the one that now has its pid and start", async () => {
    const { id } = await under.client.show("asleep");
    const machine = machineOf(under, id);
    await under.kill();
    editMachine(under, "asleep", (record) => ({ ...record, hostBootId: "another-boot" }));
    await under.start();
    expect((await under.client.show("asleep")).state).toBe("failed");
    // It bears this data directory's name, so it is ours to end, not to adopt.
    expect(isAlive(machine)).toBe(false);
    await under.client.wake("asleep");
    expect(machinesOf(under, id)).toHaveLength(1);
  });

  test("C08 a removed run directory and left-over socket files do not keep agents from waking", async () => {
    await under.client.sleep("asleep");
    const { id } = await under.client.show("awake");
    const running = machineOf(under, id);
    await under.kill("SIGTERM");
    rmSync(join(under.home, "run"), { recursive: true, force: true });
    await under.start();
    // Nobody can talk to a VM whose sockets are gone. It must not go on writing its agent's disk.
    expect((await under.client.show("awake")).state).toBe("failed");
    expect(isAlive(running)).toBe(false);
    await under.client.wake("awake");
    expect(machinesOf(under, id)).toHaveLength(1);
    await under.client.wake("asleep");
    await under.client.sleep("asleep");
    await under.kill("SIGKILL");
    // The socket of the daemon that was killed is still there.
    expect(existsSync(under.socket)).toBe(true);
    await under.start();
    await under.client.wake("asleep");
    const { count } = await readCount(under, "asleep");
    await countsOn(under, "asleep", count);
  });
});

/** Works on the state store while no daemon has it. */
function edit<T>(under: DaemonUnderTest, work: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(join(under.home, "perdure.db"));
  try {
    return work(database);
  } finally {
    database.close();
  }
}

function editMachine(
  under: DaemonUnderTest,
  name: string,
  change: (record: StoredMachine) => StoredMachine,
): void {
  edit(under, (database) => {
    const select = "SELECT document FROM agent WHERE name = ?";
    const row = database.prepare(select).get(name);
    const document = JSON.parse(String(row?.["document"])) as { lease: { machine: StoredMachine } };
    document.lease.machine = change(document.lease.machine);
    const update = "UPDATE agent SET document = ? WHERE name = ?";
    database.prepare(update).run(JSON.stringify(document), name);
  });
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch {
    return "";
  }
}

/** Field 22 of /proc/PID/stat. */
function startTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
}

/** Runs a daemon that is expected to end by itself. */
function runDaemon(
  home: string,
  args: readonly string[],
): Promise<{ code: number | null; stderr: string }> {
  const perdured = resolve("packages/daemon/bin/perdured.mjs");
  const child = spawn(process.execPath, [perdured, "--home", home, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const patience = setTimeout(() => child.kill("SIGKILL"), 60_000);
  return new Promise((settled) => {
    child.once("close", (code) => {
      clearTimeout(patience);
      settled({ code, stderr });
    });
  });
}
