import { access } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StartTools } from "../../packages/daemon/src/substrate/qemu/machine-start.ts";
import { openStartTools } from "../../packages/daemon/src/substrate/qemu/start-tools.ts";
import {
  BareMachines,
  countOf,
  cutOf,
  memoryOf,
  Prints,
  runFor,
  runToNextLine,
} from "../kvm-bare/suite.ts";
import { payload } from "../kvm-bare/payload.ts";
import { TestHome, testClock } from "./home.ts";

for (const accelerator of ["kvm", "tcg"] as const) {
  describe(`a bare machine under ${accelerator}`, () => {
    let home: TestHome;
    let tools: StartTools;
    let machines: BareMachines;
    let unusable = "";

    beforeAll(async () => {
      home = await TestHome.make();
      tools = await openStartTools({
        homeId: home.homeId,
        runDir: home.runDir,
        dataDir: `${home.path}/data`,
        clock: testClock(),
      });
      machines = await BareMachines.make(tools, accelerator, `${home.path}/payload.rom`);
      if (accelerator === "kvm") unusable = await whyNotKvm(machines);
    });

    afterAll(async () => {
      await machines.close();
      await tools.workers.close();
      await tools.cgroups.close();
      await home.close();
    });

    test("goes on from five cuts in a row, count exact", async (context) => {
      context.skip(unusable !== "", unusable);
      let machine = await machines.boot();
      const prints = new Prints();
      let before = 0;
      for (let cycle = 0; cycle < 5; cycle++) {
        await runToNextLine(machine);
        const cut = await cutOf(machine);
        const count = countOf(cut);
        expect(count).toBeGreaterThan(before);
        before = count;
        prints.add(await machine.consoleTail());
        const woken = await machines.wake(cut);
        // Every byte, and no page more or less, before it runs on.
        expect(await memoryOf(woken)).toEqual(cut.pages);
        await machine.kill();
        machine = woken;
      }
      await runToNextLine(machine);
      expect(countOf({ pages: await memoryOf(machine) })).toBeGreaterThan(before);
      prints.add(await machine.consoleTail());
      const { numbers } = prints;
      const [first = 0] = numbers;
      expect(numbers.length).toBeGreaterThan(2);
      expect(first % payload.printEvery).toBe(0);
      expect(numbers).toEqual(numbers.map((_, at) => first + at * payload.printEvery));
    });

    test("memory beyond the hole below 4 GiB is captured and restored", async (context) => {
      context.skip(unusable !== "", unusable);
      const bytes = 6 * 1024 ** 3;
      const large = await BareMachines.make(tools, accelerator, `${home.path}/large.rom`, bytes);
      const parent = await large.boot();
      await runFor(parent, 50);
      const cut = await cutOf(parent);
      // Pages around the hole and at both ends, as a guest of this size would have them.
      const gib = 1024 ** 3 / 4096;
      const pages = new Map(cut.pages);
      for (const index of [3 * gib - 1, 3 * gib, 3.5 * gib, 4 * gib, 6 * gib - 1]) {
        pages.set(index, new Uint8Array(4096).fill(index % 251));
      }
      const woken = await large.wake({ ...cut, pages });
      expect(await memoryOf(woken)).toEqual(pages);
      await runFor(woken, 50);
      const again = await cutOf(woken);
      expect(countOf(again)).toBeGreaterThan(countOf(cut));
      for (const [index, page] of pages) {
        if (index >= 3 * gib - 1) expect(again.pages.get(index)).toEqual(page);
      }
      await large.close();
    });

    test("forks in two that both go on from one cut", async (context) => {
      context.skip(unusable !== "", unusable);
      const parent = await machines.boot();
      await runFor(parent, 100);
      const cut = await cutOf(parent);
      const count = countOf(cut);
      const [first, second] = await Promise.all([machines.wake(cut), machines.wake(cut)]);
      await runFor(first, 50);
      expect(countOf({ pages: await memoryOf(second) })).toBe(count);
      await runFor(second, 50);
      expect(countOf({ pages: await memoryOf(first) })).toBeGreaterThan(count);
      expect(countOf({ pages: await memoryOf(second) })).toBeGreaterThan(count);
      expect(countOf({ pages: await memoryOf(parent) })).toBe(count);
    });
  });
}

/** Empty where a bare machine counts under KVM here. */
async function whyNotKvm(machines: BareMachines): Promise<string> {
  try {
    await access("/dev/kvm");
    const machine = await machines.boot();
    await runFor(machine, 500);
    const count = countOf({ pages: await memoryOf(machine) });
    await machine.kill();
    return count > 0 ? "" : "KVM does not run real-mode code here";
  } catch (error) {
    return `KVM cannot be used here: ${(error as Error).message}`;
  }
}
