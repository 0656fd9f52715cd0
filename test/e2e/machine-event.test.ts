/**
 * C18: what a guest does to its own machine. Reboot, power-off, panic and triple fault, each before and
 * after a wake, are told soon, end in a named state, and leave no VM process that burns a CPU.
 */
import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AgentView } from "@perdure/protocol";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { machineOf, machinesOf, refusal } from "./host-view.ts";

/** Five seconds, times four for emulation. */
const SOON_MS = 20_000;
const BOOT_MS = 180_000;
const CPU_TICK_MS = 10;
const WATCHED_MS = 500;

/** `reboot(2)`: the image has no program for it. */
const rebootCall = (command: string): string =>
  `exec perl -e 'syscall(169, 0xfee1dead, 0x28121969, ${command}, 0)'`;
const reboot = rebootCall("0x01234567");
const powerOff = rebootCall("0x4321fedc");
const panic = "echo c > /proc/sysrq-trigger";
/** The kernel's own way to reset a machine that has no other: an empty interrupt table, then a trap. */
const tripleFault = `echo triple > /sys/kernel/reboot/type
  grep -q triple /sys/kernel/reboot/type || exit 1
  ${reboot}`;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

test("C18 reboot and triple fault become cold starts, before and after a wake, and a loop of them ends", async () => {
  const { client } = under;
  await client.create({ name: "again" });
  await under.sh("again", "echo on disk > /root/kept; sync; echo in memory > /dev/shm/kept");
  await rebooted("again", reboot, 2);
  expect(await under.sh("again", "cat /root/kept; ls /dev/shm")).toBe("on disk");
  await rebooted("again", tripleFault, 3);
  await client.sleep("again");
  await client.wake("again");
  await rebooted("again", reboot, 5);

  const failed = await does("again", tripleFault, ({ state }) => state === "failed");
  expect(failed.failure?.reason).toBe("reset_loop");
  expect(failed.generation).toBe(5);
  await gone(failed);
  expect((await refusal(client.exec("again", ["/bin/true"]))).code).toBe("agent_failed");
  await client.recover("again", { from: "disk" });
  expect(await under.sh("again", "cat /root/kept")).toBe("on disk");
  await client.remove("again");
});

test("C18 a panic becomes failed, before and after a wake, and the next wake recovers", async () => {
  const { client } = under;
  await client.create({ name: "panics" });
  const expectFailed = async (): Promise<void> => {
    const failed = await does("panics", panic, ({ state }) => state === "failed");
    expect(failed.failure).toMatchObject({ reason: "panic" });
    expect(failed.failure?.message).toContain("sysrq triggered crash");
    expect(failed.failure?.wayBack).toContain("perdure wake panics");
    await gone(failed);
  };
  await expectFailed();
  expect((await client.wake("panics")).report).toMatchObject({ route: "recover", generation: 2 });
  await under.sh("panics", "echo in memory > /dev/shm/kept");
  await client.sleep("panics");
  await client.wake("panics");
  await expectFailed();
  const { report } = await client.wake("panics");
  expect(report).toMatchObject({ route: "recover", generation: 4, cut: { memory: true } });
  expect(await under.sh("panics", "cat /dev/shm/kept")).toBe("in memory");
  await client.remove("panics");
});

test("C18 a power-off becomes stopped, before and after a wake", async () => {
  const { client } = under;
  await client.create({ name: "off" });
  const expectStopped = async (): Promise<void> => {
    const stopped = await does("off", powerOff, ({ state }) => state === "stopped");
    await gone(stopped);
    expect(stopped.failure).toBeNull();
  };
  await expectStopped();
  await client.start("off");
  await client.sleep("off");
  await client.wake("off");
  await under.sh("off", "echo on disk > /root/kept; sync");
  await expectStopped();
  const { report } = await client.start("off");
  expect(report).toMatchObject({ route: "cold-start", generation: 4 });
  expect(await under.sh("off", "cat /root/kept")).toBe("on disk");
});

/** Lets the guest do that and waits for the state that comes of it. */
async function does(
  name: string,
  line: string,
  reached: (agent: AgentView) => boolean,
): Promise<AgentView> {
  // The answer may go down with the guest.
  await under.client.exec(name, ["/bin/bash", "-c", line], { user: "root" }).catch(() => undefined);
  let agent = await under.client.show(name);
  const what = `the state after "${line}"`;
  await until(what, async () => reached((agent = await under.client.show(name))), SOON_MS);
  return agent;
}

/** The state is stored first, then the VM ends. */
function gone({ id }: AgentView): Promise<void> {
  return until("its VM to be gone", () => machinesOf(under, id).length === 0, SOON_MS);
}

/** The guest resets itself: told soon, then awake in this generation on a machine that idles. */
async function rebooted(name: string, line: string, generation: number): Promise<void> {
  const { id } = await does(name, line, (agent) => agent.state !== "awake");
  await until(
    "the cold start",
    async () => {
      const { state, failure } = await under.client.show(name);
      if (state === "failed") throw new Error(failure?.message);
      return state === "awake";
    },
    BOOT_MS,
  );
  expect(await under.client.report(name)).toMatchObject({ route: "cold-start", generation });
  const pid = machineOf(under, id);
  await until("the VM to idle", async () => (await cpuShare(pid)) < 0.5, SOON_MS);
}

/** CPUs that a process keeps busy, over a moment. */
async function cpuShare(pid: number): Promise<number> {
  const beganMs = performance.now();
  const before = cpuMs(pid);
  await new Promise((next) => setTimeout(next, WATCHED_MS));
  return (cpuMs(pid) - before) / (performance.now() - beganMs);
}

function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * CPU_TICK_MS;
}
