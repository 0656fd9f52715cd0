/** Whether KVM is used is decided by a boot, not by the presence of a device. */
import { readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { BootFiles } from "../../packages/daemon/src/core/ports/substrate.ts";
import { kvmUnusable } from "../../packages/daemon/src/substrate/qemu/acceleration.ts";
import { probe, probeBoot } from "../../packages/daemon/src/substrate/qemu/probe-boot.ts";
import { TestHome, testClock } from "./home.ts";
import { makeProbeImage } from "./probe-image.ts";
import { testShape } from "./qemu-subject.ts";

let home: TestHome;
let boot: BootFiles;

beforeAll(async () => {
  home = await TestHome.make();
  boot = await makeProbeImage(home.path);
});

afterAll(async () => {
  await home.close();
});

test("`auto` says what it chose and why, and remembers it for this boot of the host", async () => {
  const spec = { tenant: "default", shape: testShape, base: { kind: "zero" }, boot } as const;
  const cachePath = join(home.path, "data", "accelerator.json");
  const first = await home.open({ accelerator: "auto" });
  const { accelerator } = await first.facts(spec);
  const verdict = (await first.describeHost()).accelerator;
  expect(verdict?.accelerator).toBe(accelerator);
  console.log(`auto chose ${accelerator}: ${verdict?.reason ?? ""}`);
  expect(home.logged.join("\n")).toContain("VMs run");
  if ((await kvmUnusable()) === null) {
    expect(await readFile(cachePath, "utf8")).toContain(boot.kernelDigest);
    const { mtimeNs } = await stat(cachePath, { bigint: true });
    const second = await home.open({ accelerator: "auto" });
    expect((await second.facts(spec)).accelerator).toBe(accelerator);
    // Known, not probed for again: that would have written it anew.
    expect((await stat(cachePath, { bigint: true })).mtimeNs).toBe(mtimeNs);
    await rm(cachePath);
  }
  // Whatever it chose, it can boot with it.
  const machine = await first.bootCold(spec, { imagePath: null, layerPaths: [] });
  expect(machine.facts.accelerator).toBe(accelerator);
  await machine.kill();
});

test("the probe tells a kernel that boots from one that does not", async () => {
  const substrate = await home.open({ accelerator: "tcg" });
  const start = (commandLine: string) => async () => {
    const spec = { tenant: "default", shape: testShape, base: { kind: "zero" } } as const;
    const files = probeBoot({ ...boot, commandLine });
    const machine = await substrate.bootCold({ ...spec, boot: files }, noDisk);
    // The monitor has one client at a time.
    await machine.release();
    return (await substrate.adopt(machine.record, { ...spec, boot: files })) ?? neverNull();
  };
  const noDisk = { imagePath: null, layerPaths: [] };
  // Emulation is slow: its clock is slower than the deadlines'.
  const clock = testClock(0.3);
  expect(await probe(start(boot.commandLine), clock)).toMatchObject({ booted: true });
  const broken = await probe(start("console=ttyS0 panic=-1 rdinit=/none root=none"), clock);
  expect(broken.booted).toBe(false);
  expect(broken.detail).toMatch(/panic|reset/);
});

function neverNull(): never {
  throw new Error("The machine is gone");
}
