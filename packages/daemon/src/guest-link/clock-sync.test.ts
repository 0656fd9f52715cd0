import { describe, expect, test } from "vitest";
import type { Clock } from "../core/ports/clock.ts";
import { setGuestClock } from "./clock-sync.ts";
import { FakeGuest } from "./fake/fake-guest.ts";
import { FakeGuestLinks } from "./fake/fake-links.ts";
import { hostClock } from "./host-clock.ts";

/** A host and a guest with clocks of their own, where only round trips take time. */
class World {
  monotonicMs = 1000;
  wallMs = 1_700_000_000_000;
  guestMs: number;
  pings = 0;
  adjusted: number[] = [];
  /** What each ping takes, there and back. */
  trip: (ping: number) => readonly [number, number] = () => [0.1, 0.1];
  beforePing: (ping: number) => void = () => undefined;
  adjustTrip: readonly [number, number] = [0.2, 0.2];
  beforeAdjust: (adjustment: number) => void = () => undefined;

  constructor(skewMs: number) {
    this.guestMs = this.wallMs + skewMs;
  }

  readonly clock: Clock = {
    nowMs: () => Math.floor(this.wallMs),
    monotonicMs: () => this.monotonicMs,
    wait: () => Promise.reject(new Error("Nobody waits here")),
    randomBytes: (count) => new Uint8Array(count),
  };

  readonly probe = {
    ping: () => {
      this.beforePing(++this.pings);
      const [there, back] = this.trip(this.pings);
      this.pass(there);
      const guestMs = this.guestMs;
      this.pass(back);
      return Promise.resolve({ guestMs, atMs: this.monotonicMs });
    },
    adjust: (deltaMs: number) => {
      this.adjusted.push(deltaMs);
      this.beforeAdjust(this.adjusted.length);
      this.pass(this.adjustTrip[0]);
      this.guestMs += deltaMs;
      const guestMs = this.guestMs;
      this.pass(this.adjustTrip[1]);
      return Promise.resolve({ guestMs, atMs: this.monotonicMs });
    },
  };

  pass(ms: number): void {
    this.monotonicMs += ms;
    this.wallMs += ms;
    this.guestMs += ms;
  }

  get skewMs(): number {
    return this.guestMs - this.wallMs;
  }
}

describe("setting the guest's clock", () => {
  test.each([0, 60_000, -60_000, 36_000_000, -31_536_000_000_000])(
    "a skew of %i ms is gone after one adjustment, and the bound holds",
    async (skewMs) => {
      const world = new World(skewMs);
      const measured = await setGuestClock(world.probe, world.clock, 10_000);
      expect(Math.abs(world.skewMs)).toBeLessThan(1.5);
      expect(Math.abs(measured.skewMs - world.skewMs)).toBeLessThanOrEqual(measured.boundMs);
      expect(world.adjusted.length).toBe(skewMs === 0 ? 0 : 1);
      expect(Math.abs(measured.movedMs + skewMs)).toBeLessThan(3);
    },
  );

  test("after a slow first round trip, three round trips and one adjustment are all", async () => {
    const world = new World(60_000);
    world.trip = (ping) => (ping === 1 ? [9, 1] : [0.2, 0.2]);
    const measured = await setGuestClock(world.probe, world.clock, 10_000);
    expect(world.pings).toBe(2);
    expect(world.adjusted.length).toBe(1);
    expect(measured.roundTrips).toBe(3);
    expect(Math.abs(measured.skewMs) + measured.boundMs).toBeLessThan(3);
  });

  test("a busy host is done after a few round trips, well within what is wanted", async () => {
    const world = new World(-60_000);
    world.trip = () => [12, 2];
    world.adjustTrip = [12, 2];
    const measured = await setGuestClock(world.probe, world.clock, 10_000);
    expect(measured.roundTrips).toBeLessThanOrEqual(15);
    expect(Math.abs(measured.skewMs) + measured.boundMs).toBeLessThan(25);
    expect(Math.abs(measured.skewMs - world.skewMs)).toBeLessThanOrEqual(measured.boundMs);
  });

  test.each([-3_600_000, -1_000, -20, 20, 1_000, 3_600_000])(
    "a jump of the host's wall clock by %i ms during an adjustment is not handed on",
    async (jumpMs) => {
      for (const at of [1, 2]) {
        const world = new World(7_000);
        world.adjustTrip = [0.3, 0.1];
        world.beforeAdjust = (adjustment) => {
          if (adjustment === at) world.wallMs += jumpMs;
        };
        const measured = await setGuestClock(world.probe, world.clock, 10_000);
        expect(Math.abs(world.skewMs)).toBeLessThan(2);
        expect(Math.abs(measured.skewMs - world.skewMs)).toBeLessThanOrEqual(measured.boundMs);
      }
    },
  );

  test("the quickest round trip decides, however lopsided the others are", async () => {
    const world = new World(5_000);
    world.trip = (ping) => (ping % 12 === 2 ? [0.2, 0.2] : [40, 1]);
    const measured = await setGuestClock(world.probe, world.clock, 10_000);
    expect(Math.abs(world.skewMs)).toBeLessThan(2);
    expect(measured.boundMs).toBeLessThan(2);
  });

  test("where every round trip is slow the bound says so and the truth is within it", async () => {
    const world = new World(-5_000);
    world.trip = () => [70, 10];
    world.adjustTrip = [70, 10];
    const measured = await setGuestClock(world.probe, world.clock, 60_000);
    expect(measured.boundMs).toBeGreaterThanOrEqual(40);
    expect(Math.abs(measured.skewMs - world.skewMs)).toBeLessThanOrEqual(measured.boundMs);
  });

  test.each([-3_600_000, -1_000, -20, 20, 1_000, 3_600_000])(
    "a jump of the host's wall clock by %i ms at any moment is not handed on",
    async (jumpMs) => {
      for (let at = 1; at <= 12; at++) {
        const world = new World(7_000);
        world.beforePing = (ping) => {
          if (ping === at) world.wallMs += jumpMs;
        };
        const measured = await setGuestClock(world.probe, world.clock, 10_000);
        if (world.pings < at) continue;
        expect(Math.abs(world.skewMs)).toBeLessThan(2);
        expect(Math.abs(measured.skewMs - world.skewMs)).toBeLessThanOrEqual(measured.boundMs);
      }
    },
  );

  test("a guest that takes no adjustment is measured as it is", async () => {
    const world = new World(9_000);
    world.probe.adjust = (deltaMs) => {
      world.adjusted.push(deltaMs);
      return world.probe.ping();
    };
    const measured = await setGuestClock(world.probe, world.clock, 10_000);
    expect(measured.skewMs).toBeGreaterThan(8_990);
    expect(world.adjusted.length).toBeLessThan(10);
  });

  test("a wall clock that never stands still ends at the deadline", async () => {
    const world = new World(0);
    world.beforePing = () => {
      world.wallMs += 100;
    };
    await expect(setGuestClock(world.probe, world.clock, 50)).rejects.toMatchObject({
      code: "guest_timeout",
    });
  });

  test("over a link, with a host whose wall clock was set while the guest slept", async () => {
    let jumpMs = 0;
    const clock: Clock = { ...hostClock, nowMs: () => Date.now() + jumpMs };
    const guest = new FakeGuest({ skewMs: -3_000 });
    const links = new FakeGuestLinks({ clock });
    links.put("guest", guest);
    const link = await links.connect("guest");
    await link.sync(1, 10_000);
    jumpMs = 86_400_000;
    const { skewMs, boundMs } = await link.setClock(20_000);
    expect(Math.abs(skewMs) + boundMs).toBeLessThan(50);
    expect(Math.abs(guest.nowMs() - clock.nowMs())).toBeLessThan(50);
    link.close("test");
  });
});
