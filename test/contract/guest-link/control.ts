/** Control operations: clock, entropy, generation, identity, statistics, caches, freezer. */
import { describe, expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { collect, logged, text } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function controlTests(rig: GuestLinkRig): void {
  describe("control", () => {
    test("the generation that was set is the one that info tells", async (context) => {
      rig.needs(context, "generation");
      const link = await rig.synced();
      await link.setGeneration(41, '{"generation":41}');
      expect((await link.info(DEADLINE_MS)).generation).toBe(41);
      link.close("test");
    });

    test("the clock is set within its bound", async (context) => {
      rig.needs(context, "clock");
      const link = await rig.synced();
      const { skewMs, boundMs, roundTrips } = await link.setClock(DEADLINE_MS);
      expect(Math.abs(skewMs)).toBeLessThanOrEqual(50 + boundMs);
      expect(boundMs).toBeGreaterThan(0);
      expect(roundTrips).toBeGreaterThan(0);
      link.close("test");
    });

    test("the clock's own measure tells how far it was moved", async (context) => {
      rig.needs(context, "clock");
      const link = await rig.synced();
      await link.setClock(DEADLINE_MS);
      const { movedMs } = await link.setClock(DEADLINE_MS);
      expect(Math.abs(movedMs)).toBeLessThan(1000);
      link.close("test");
    });

    test("info tells what the kernel keeps time by, and it is changed to none that it does not know", async (context) => {
      const link = await rig.synced();
      const before = (await link.info(DEADLINE_MS)).clock;
      expect(before?.source).toMatch(/^[a-z_-]+$/);
      expect(before?.tscHz ?? 1e9).toBeGreaterThan(1e8);
      await refuses(link.useClockSource("no-such-source"), "not_supported");
      rig.needs(context, "clock-source");
      await link.useClockSource("acpi_pm");
      expect((await link.info(DEADLINE_MS)).clock?.source).toBe("acpi_pm");
      await link.useClockSource("tsc");
      expect((await link.info(DEADLINE_MS)).clock?.source).toBe("tsc");
      link.close("test");
    });

    test("waits are shortened while the workload is frozen, and not otherwise", async (context) => {
      rig.needs(context, "freeze");
      const link = await rig.synced();
      await refuses(link.shortenFrozenWaits(), "bad_request");
      await link.freeze(DEADLINE_MS);
      expect(await link.shortenFrozenWaits()).toBe(0);
      await link.thaw();
      await refuses(link.shortenFrozenWaits(), "bad_request");
      link.close("test");
    });

    test("entropy is taken, 32 to 512 bytes", async (context) => {
      const link = await rig.synced();
      await refuses(link.addEntropy(new Uint8Array(31)), "bad_request");
      await refuses(link.addEntropy(new Uint8Array(513)), "bad_request");
      rig.needs(context, "entropy");
      await link.addEntropy(crypto.getRandomValues(new Uint8Array(64)));
      link.close("test");
    });

    test("flush is answered", async () => {
      const link = await rig.synced();
      await link.flush(DEADLINE_MS);
      link.close("test");
    });

    test("statistics and timers are read", async (context) => {
      rig.needs(context, "stats");
      const link = await rig.synced();
      expect((await link.stats()).memTotalBytes).toBeGreaterThan(0);
      for (const timer of await link.timers()) expect(timer.dueInMs).toBeGreaterThanOrEqual(0);
      link.close("test");
    });

    test("the figures of memory are told by themselves, the same as among all", async (context) => {
      rig.needs(context, "stats");
      const link = await rig.synced();
      const memory = await link.stats("memory");
      const all = await link.stats();
      expect(memory.memTotalBytes).toBe(all.memTotalBytes);
      expect(Object.keys(all)).toEqual(expect.arrayContaining(Object.keys(memory)));
      expect(memory.anonBytes).toBeGreaterThan(0);
      for (const bytes of Object.values(memory)) expect(bytes).toBeGreaterThanOrEqual(0);
      expect(memory.slabBytes).toBeGreaterThan(memory.slabReclaimableBytes ?? Infinity);
      link.close("test");
    });

    test("activity counts what users do", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const before = await link.activity();
      const { process } = await link.exec(rig.shell("echo up; sleep 60"));
      const reader = link.attach(process, 0)[Symbol.asyncIterator]();
      await reader.next();
      await rig.write(link, "counted", "x");
      await link.makeFolder(`${rig.subject.folder}/counted-folder`, {
        user: rig.subject.user,
        mode: 0o755,
        parents: false,
      });
      const during = await link.activity();
      expect(during.execs).toBe((before.execs ?? NaN) + 1);
      expect(during.fileWrites).toBe((before.fileWrites ?? NaN) + 2);
      expect(during.attached).toBe((before.attached ?? NaN) + 1);
      expect(during.cpuUsec).toBeGreaterThanOrEqual(before.cpuUsec);
      expect(during.diskWriteBytes).toBeGreaterThanOrEqual(before.diskWriteBytes);
      await reader.return?.();
      await link.signal(process, 9, true, DEADLINE_MS);
      await expect
        .poll(async () => (await link.activity()).attached, { timeout: DEADLINE_MS })
        .toBe(before.attached);
      link.close("test");
    });

    test("caches are dropped, or it is said that they cannot be", async (context) => {
      const link = await rig.synced();
      if (rig.subject.missing["drop-caches"] !== undefined) {
        await refuses(link.dropCaches(DEADLINE_MS), "not_supported");
      }
      rig.needs(context, "drop-caches");
      await link.flush(DEADLINE_MS);
      const before = await link.stats("memory");
      await link.dropCaches(DEADLINE_MS);
      const after = await link.stats("memory");
      expect(after.cachedBytes).toBeLessThan(before.cachedBytes);
      link.close("test");
    });

    test("control operations that are sent at once are all answered", async (context) => {
      rig.needs(context, "generation");
      const link = await rig.synced();
      const [info, clock] = await Promise.all([
        link.info(DEADLINE_MS),
        rig.subject.missing.clock === undefined ? link.setClock(DEADLINE_MS) : undefined,
        link.setGeneration(77, "{}"),
        link.runHooks(DEADLINE_MS),
        link.info(DEADLINE_MS).then((later) => expect(later.generation).toBe(77)),
      ]);
      expect(info.version).not.toBe("");
      expect(clock?.boundMs ?? 0).toBeGreaterThanOrEqual(0);
      link.close("test");
    });

    test("identity is taken", async (context) => {
      rig.needs(context, "identity");
      const link = await rig.synced();
      await link.setIdentity({
        hostname: "a1",
        machineId: "0123456789abcdef0123456789abcdef",
        bootId: "00000000-0000-4000-8000-000000000001",
        files: [{ path: "/etc/perdure-test", mode: 0o600, bytes: new Uint8Array([1, 2, 3]) }],
      });
      link.close("test");
    });

    test("a frozen workload stands still and goes on after the thaw", async (context) => {
      rig.needs(context, "freeze");
      const link = await rig.letOut();
      const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/cat"], stdin: true });
      await link.writeStdin(process, Buffer.from("first\n"), false);
      await logged(link, process, 6);
      await link.freeze(DEADLINE_MS);
      expect((await link.info(DEADLINE_MS)).frozen).toBe(true);
      await link.writeStdin(process, Buffer.from("thawed\n"), true);
      await new Promise((resolve) => setTimeout(resolve, 1000));
      const frozen = (await link.processes()).find((view) => view.process === process);
      expect(frozen).toMatchObject({ running: true, logEnd: 6 });
      await link.thaw();
      expect((await link.info(DEADLINE_MS)).frozen).toBe(false);
      expect(text(await collect(link, process, 0))).toBe("first\nthawed\n");
      link.close("test");
    });
  });
}
