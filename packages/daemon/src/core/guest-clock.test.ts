/** When a guest's clock is moved at a wake, by how much, and what the report says of it. */
import { manifestSchema, type SubstrateFacts } from "@perdure/protocol";
import { beforeEach, describe, expect, test } from "vitest";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import {
  checkpoint,
  create,
  exec,
  recover,
  reportOf,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { checkClockPlan, planClock } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";

const HOUR = 3_600_000;
const HZ = 2_000_000_000;
const MIB = 1024 * 1024;
const digest = "0".repeat(64) as SubstrateFacts["kernel"];
const host: SubstrateFacts = {
  vmm: "fake",
  vmmVersion: "1",
  machineType: "m",
  deviceDigest: digest,
  shape: { memoryBytes: 512 * MIB, cpus: 1, diskBytes: 4096 * MIB },
  cpuModel: "c",
  accelerator: "tcg",
  tscKhz: HZ / 1000,
  movableClock: "tsc",
  kernel: digest,
  initramfs: digest,
  guestProtocol: 1,
};
const captured = (source: string, tscHz: number | null = HZ): SubstrateFacts => ({
  ...host,
  guestClock: { source, tscHz },
});

describe("the plan", () => {
  test("a clock that the guest keeps time by and the VMM can move is moved, at the guest's own rate", () => {
    expect(planClock(captured("tsc", HZ + 7), host, HOUR)).toEqual({
      advance: { ms: HOUR, tscHz: HZ + 7 },
      obstacle: null,
      source: null,
    });
    // Its rate is that of the host where it was not measured.
    expect(planClock(captured("tsc", null), host, HOUR).advance).toEqual({ ms: HOUR, tscHz: HZ });
  });

  test("nothing is moved where nobody asked, and never backwards or beyond the limit", () => {
    expect(planClock(captured("tsc"), host, null)).toEqual({
      advance: null,
      obstacle: null,
      source: null,
    });
    expect(planClock(captured("tsc"), host, -5).advance?.ms).toBe(0);
    const limit = engineLimits.clockAdvanceMs;
    expect(planClock(captured("tsc"), host, 2 * limit).advance?.ms).toBe(limit);
  });

  test("what stands in the way is said", () => {
    const { movableClock: _movable, ...fixed } = host;
    const obstacle = (from: SubstrateFacts, to: SubstrateFacts): string | null => {
      const plan = planClock(from, to, HOUR);
      expect(plan.advance).toBeNull();
      return plan.obstacle;
    };
    expect(obstacle(captured("tsc"), fixed)).toContain("VMM");
    expect(obstacle(host, host)).toContain("older version");
    expect(obstacle(captured("acpi_pm", null), host)).toContain("acpi_pm");
    expect(obstacle(captured("kvm-clock", null), host)).toContain("kvm-clock");
  });

  test("on a host whose counter runs at another rate the kernel gets its other source, and the counter back later", () => {
    const other = { ...host, tscKhz: 2_400_000 };
    // The move itself is right: the guest counts what it is given at its own rate.
    expect(planClock(captured("tsc"), other, HOUR)).toEqual({
      advance: { ms: HOUR, tscHz: HZ },
      obstacle: null,
      source: "acpi_pm",
    });
    expect(planClock(captured("tsc"), { ...host, tscKhz: 2_001_500 }, null).source).toBeNull();
    expect(planClock(captured("tsc"), { ...host, tscKhz: 2_003_000 }, null).source).toBe("acpi_pm");
    expect(planClock(captured("acpi_pm"), other, null).source).toBeNull();
    expect(planClock(captured("acpi_pm"), host, null).source).toBe("tsc");
    // A kernel that never kept time by the counter is left alone, and so is one that nothing is known of.
    expect(planClock(captured("acpi_pm", null), host, null).source).toBeNull();
    expect(planClock(host, other, null).source).toBeNull();
    expect(planClock(captured("kvm-clock"), other, null).source).toBeNull();
  });
});

describe("the report's checks", () => {
  test("a move is believed when the wall clock was right after it", () => {
    const plan = planClock(captured("tsc"), host, HOUR);
    expect(checkClockPlan(plan, -12)).toMatchObject([
      {
        check: "clock-advance",
        outcome: "passed",
        detail: expect.stringContaining("3600.0 s") as string,
      },
    ]);
    expect(checkClockPlan(plan, HOUR)).toMatchObject([
      {
        check: "clock-advance",
        outcome: "notice",
        detail: expect.stringContaining("3600.0 s") as string,
      },
    ]);
  });

  test("nothing is said where nothing was asked, and a reason where it could not be", () => {
    expect(checkClockPlan(planClock(captured("tsc"), host, null), 0)).toEqual([]);
    const [check] = checkClockPlan(planClock(host, host, HOUR), HOUR);
    expect(check).toMatchObject({ check: "clock-advance", outcome: "notice" });
  });
});

describe("an agent", () => {
  let world: World;
  beforeEach(async () => {
    world = new World();
    await world.execute(create("a1"));
    await world.execute(exec("a1", "wait-for", String(100 * HOUR)));
  });

  const slept = async (ms: number): Promise<void> => {
    await world.execute(verb("sleep", "a1"));
    await world.time.advance(ms);
  };

  test("finds the time away on its monotonic clock after a wake, and no wait behind it", async () => {
    await slept(HOUR);
    const woken = await world.execute(verb("wake", "a1"));
    expect((await world.guest("a1")).memory).toMatchObject({ advancedMs: HOUR, waitsBehindMs: 0 });
    const { checks, clock, verdict } = reportOf(woken);
    expect(verdict).toBe("continue");
    expect(checks).toContainEqual({
      check: "clock-advance",
      outcome: "passed",
      detail: "The monotonic clock was moved by 3600.0 s; the wall clock was then off by 0 ms.",
    });
    expect(clock).toMatchObject({ movedMs: 0 });
    expect(await violationsOf(world)).toEqual([]);
  });

  test("in which nobody waits goes on where its clock stood", async () => {
    await world.execute(create("a2"));
    const before = (await world.guest("a2")).monotonicMs;
    await world.execute(verb("sleep", "a2"));
    await world.time.advance(HOUR);
    const { checks } = reportOf(await world.execute(verb("wake", "a2")));
    expect((await world.guest("a2")).monotonicMs - before).toBeLessThan(1000);
    expect(checks.map(({ check }) => check)).not.toContain("clock-advance");
  });

  test("is awake for a wait no longer than it takes: it was due when the agent was woken for it", async () => {
    const { process } = await world.execute(exec("a1", "wait-for", String(2 * HOUR)));
    const startedMs = world.time.nowMs;
    await slept(HOUR);
    await world.time.advance(HOUR + 60_000);
    expect((await world.agent("a1")).state).toBe("awake");
    const guest = await world.guest("a1");
    expect(guest.timers.find(({ pid }) => pid === 100 + process)?.dueInMs).toBe(0);
    expect(world.time.nowMs - startedMs).toBeLessThan(2 * HOUR + 61_000);
  });

  test("goes on where its clock stood when it is restored, recovered or forked from a cut", async () => {
    const { id } = await world.execute(checkpoint("a1", "kept"));
    await world.time.advance(HOUR);
    await world.execute(restore("a1", id));
    expect((await world.guest("a1")).memory.advancedMs).toBe(0);
    await slept(HOUR);
    await world.execute(recover("a1", "checkpoint"));
    expect((await world.guest("a1")).memory.advancedMs).toBe(0);
  });

  test("whose workload did not freeze in time keeps its clock, and the report says so", async () => {
    world.faults.arm("link.freeze", {
      kind: "fail",
      error: Object.assign(new Error("too busy"), { code: "freeze_timeout" }) as never,
    });
    await slept(HOUR);
    const { checks } = reportOf(await world.execute(verb("wake", "a1")));
    expect(checks).toContainEqual({
      check: "clock-advance",
      outcome: "notice",
      detail: "Waits inside last longer by the time away: its workload did not freeze at the cut.",
    });
    expect((await world.guest("a1")).memory.advancedMs).toBe(0);
  });

  test("with a wait of months is woken before runtimes overflow", async () => {
    await world.execute(create("a2"));
    await world.execute(exec("a2", "wait-for", String(1000 * HOUR)));
    const { waitDueMs } = await world.execute(verb("sleep", "a2"));
    expect((waitDueMs ?? 0) - world.time.nowMs).toBe(engineLimits.waitFarMs);
    const near = await world.execute(verb("sleep", "a1"));
    expect((near.waitDueMs ?? 0) - world.time.nowMs).toBeLessThanOrEqual(100 * HOUR);
  });

  test("whose kernel keeps time by something else wakes all the same, and the report says so", async () => {
    (await world.guest("a1")).memory.clockSource = "acpi_pm_of_old";
    await slept(HOUR);
    const { verdict, checks } = reportOf(await world.execute(verb("wake", "a1")));
    expect(verdict).toBe("continue-with-notices");
    expect(checks).toContainEqual({
      check: "clock-advance",
      outcome: "notice",
      detail:
        "Waits inside last longer by the time away: its kernel keeps time by acpi_pm_of_old, which cannot be moved.",
    });
    expect((await world.guest("a1")).memory.advancedMs).toBe(0);
  });

  test("on a host with another counter keeps time by the ACPI timer, and by the counter again at home", async () => {
    await slept(HOUR);
    world.host.factsPatch = { tscKhz: 2_400_000 };
    const away = reportOf(await world.execute(verb("wake", "a1")));
    expect((await world.guest("a1")).memory).toMatchObject({
      clockSource: "acpi_pm",
      advancedMs: HOUR,
    });
    expect(away.checks).toContainEqual(
      expect.objectContaining({ check: "clock-source", outcome: "notice" }),
    );
    await slept(HOUR);
    world.host.factsPatch = {};
    const home = reportOf(await world.execute(verb("wake", "a1")));
    expect((await world.guest("a1")).memory).toMatchObject({
      clockSource: "tsc",
      advancedMs: HOUR,
    });
    expect(home.checks).toContainEqual(
      expect.objectContaining({ check: "clock-source", outcome: "passed" }),
    );
    await slept(HOUR);
    await world.execute(verb("wake", "a1"));
    expect((await world.guest("a1")).memory.advancedMs).toBe(2 * HOUR);
  });

  test("a wake whose waits cannot be shortened lets out all the same, and says so", async () => {
    await slept(HOUR);
    world.faults.arm("link.shortenFrozenWaits", {
      kind: "fail",
      error: Object.assign(new Error("not this time")) as never,
    });
    const { agent, report } = await world.execute(verb("wake", "a1"));
    expect(agent.state).toBe("awake");
    expect(report?.checks).toContainEqual(
      expect.objectContaining({ check: "clock-waits", outcome: "notice" }),
    );
    expect(await violationsOf(world)).toEqual([]);
  });

  test("a wake that ends between let-out and thaw leaves no wait behind: the next daemon shortens them", async () => {
    await slept(HOUR);
    world.faults.arm("link.thaw", {
      kind: "fail",
      error: Object.assign(new Error("link broke")) as never,
    });
    world.faults.arm("link.shortenFrozenWaits", {
      kind: "fail",
      error: Object.assign(new Error("link broke")) as never,
    });
    await world.execute(verb("wake", "a1"));
    expect((await world.guest("a1")).memory).toMatchObject({ frozen: false, waitsBehindMs: 0 });
  });
});

test("a manifest of before, without a word of clocks, is one of today", () => {
  const { movableClock: _movable, ...before } = host;
  const { substrate } = manifestSchema.shape;
  expect(substrate.parse(before)).toEqual(before);
  expect(substrate.parse(captured("tsc"))).toEqual(captured("tsc"));
  expect(substrate.safeParse(captured("x".repeat(65))).success).toBe(false);
});
