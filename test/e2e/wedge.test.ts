/**
 * Guests that do not answer after a wake. A process inside that left the workload's cgroup takes the
 * only CPU for itself from the freeze on, so that the guest agent, frozen with it in the checkpoint,
 * never runs: the link accepts and nobody answers. The two cases run side by side, each on its agent.
 */
import { readdirSync, readFileSync } from "node:fs";
import type { PerdureError } from "@perdure/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { starver } from "./guest-program.ts";
import { isAlive, machinesOf } from "./host-view.ts";

/** The engine waits 20 s for a first answer, and a little for the last words on the console. */
const REFUSED_WITHIN_MS = 40_000;
const CPU_TICK_MS = 10;
const ATTEMPTS = 5;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

test.concurrent(
  "C07 a VM that goes silent during its wake: typed error, VM gone, checkpoint kept, the next wake works",
  async () => {
    const { client } = under;
    let pid = 0;
    let beganMs = 0;
    // It starves the guest for long enough to be stopped before anyone inside could answer.
    const { before, error } = await refusedWake("mute", 8, async (id, isOver) => {
      beganMs = performance.now();
      await until("the VM to run", () => {
        pid = machinesOf(under, id)[0] ?? 0;
        return isOver() || (pid !== 0 && guestCpuMs(pid) > 200);
      });
      if (!isOver()) process.kill(pid, "SIGSTOP");
    });
    const { name } = before;
    expect(performance.now() - beganMs).toBeLessThan(REFUSED_WITHIN_MS);
    expect(["wake_timeout", "machine_failed"]).toContain(error.code);
    expect(error.hint).toContain(`perdure recover ${name} --from disk`);
    expect(isAlive(pid)).toBe(false);
    expect(await client.show(name)).toMatchObject({ state: "asleep", head: before.head });

    const { agent, report } = await client.wake(name);
    expect(agent.generation).toBe(before.generation + 2);
    expect(report?.cut.checkpoint).toBe(before.head);
    expect(await under.sh(name, "cat /dev/shm/kept")).toBe("in memory");
  },
);

test.concurrent(
  "C14 a memory image that wedges the guest is told as that, and its disk is the way out",
  async () => {
    const { client } = under;
    const { before, error } = await refusedWake("wedged", 1_000_000);
    const { name } = before;
    expect(error.code).toBe("wake_timeout");
    expect(error.message).toContain("did not answer");
    expect(error.hint).toContain(`perdure recover ${name} --from disk`);
    expect(machinesOf(under, before.id)).toEqual([]);
    expect(await client.show(name)).toMatchObject({ state: "asleep", head: before.head });

    const { agent, report } = await client.recover(name, { from: "disk" });
    expect(agent.state).toBe("awake");
    expect(report).toMatchObject({ route: "recover", cut: { memory: false } });
    expect(report?.otherCut).toMatchObject({ checkpoint: before.head, memory: true });
    expect(await under.sh(name, "cat /root/kept; ls /dev/shm")).toBe("on disk");
  },
);

/**
 * A wake of a starved guest that is refused. One that answers before it is starved, or when it is no longer, is no
 * case of this: then there is another agent.
 *
 * @param meanwhile `isOver`: whether the wake has ended
 */
async function refusedWake(
  prefix: string,
  seconds: number,
  meanwhile: (id: string, isOver: () => boolean) => Promise<void> = () => Promise.resolve(),
) {
  const { client } = under;
  for (let attempt = 1; ; attempt++) {
    const before = await asleepWith(`${prefix}${attempt}`, seconds);
    let over = false;
    const waking = client.wake(before.name).then(
      () => null,
      (error: unknown) => error,
    );
    void waking.then(() => (over = true));
    await meanwhile(before.id, () => over);
    const error = await waking;
    if (error !== null) return { before, error: error as PerdureError };
    if (attempt === ATTEMPTS) throw new Error("No wake met a guest that was starved");
    await client.remove(before.name);
  }
}

/** An agent that fell asleep while the guest was being starved. */
async function asleepWith(name: string, seconds: number) {
  const { client } = under;
  await client.create({ name });
  await under.sh(name, "echo on disk > /root/kept; sync; echo in memory > /dev/shm/kept");
  await client.exec(name, ["/usr/bin/python3", "-c", starver(seconds)], { user: "root" });
  await until("the process inside", async () => {
    return (await under.sh(name, "ls /dev/shm")).includes("ready");
  });
  const asleep = await client.sleep(name);
  const [kept] = (await client.checkpoints(name)).slice(-1);
  expect(kept).toMatchObject({ id: asleep.head, memory: true });
  return asleep;
}

/** CPU time of the busiest thread but the main one: once the VM runs, that of the guest's CPU. */
function guestCpuMs(pid: number): number {
  try {
    const ticks = readdirSync(`/proc/${pid}/task`).map((task) => {
      if (Number(task) === pid) return 0;
      const stat = readFileSync(`/proc/${pid}/task/${task}/stat`, "latin1");
      const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      return Number(fields[11]) + Number(fields[12]);
    });
    return Math.max(...ticks) * CPU_TICK_MS;
  } catch {
    return 0;
  }
}
