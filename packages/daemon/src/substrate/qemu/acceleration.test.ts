import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Digest } from "@perdure/protocol";
import { Acceleration, type AccelerationOptions } from "./acceleration.ts";

const boot = {
  kernelPath: "/k",
  kernelDigest: "a".repeat(64) as Digest,
  initramfsPath: "/i",
  initramfsDigest: "b".repeat(64) as Digest,
  commandLine: "",
  guestProtocol: 1,
};

let folder: string;
let probes = 0;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-acceleration-"));
  probes = 0;
});

afterEach(async () => {
  await rm(folder, { recursive: true });
});

function make(booted: boolean, more: Partial<AccelerationOptions> = {}): Acceleration {
  return new Acceleration({
    wanted: "auto",
    qemuVersion: "7.2",
    cachePath: join(folder, "accelerator.json"),
    unusable: () => Promise.resolve(null),
    probe: () => {
      probes++;
      return Promise.resolve({ booted, detail: "test" });
    },
    log: () => undefined,
    ...more,
  });
}

test("a boot decides, once for all who ask, and is remembered", async () => {
  const first = make(true);
  const verdicts = await Promise.all([first.choose(boot), first.choose(boot)]);
  expect(verdicts.map(({ accelerator }) => accelerator)).toEqual(["kvm", "kvm"]);
  expect((await make(false).choose(boot)).accelerator).toBe("kvm");
  expect(probes).toBe(1);
});

test("another kernel and another QEMU are tried anew", async () => {
  await make(true).choose(boot);
  const other = { ...boot, kernelDigest: "c".repeat(64) as Digest };
  expect((await make(false).choose(other)).accelerator).toBe("tcg");
  expect((await make(false, { qemuVersion: "10.0" }).choose(boot)).accelerator).toBe("tcg");
  expect(probes).toBe(3);
});

test("without a usable device nothing is tried, and the reason is given", async () => {
  const chosen = await make(true, { unusable: () => Promise.resolve("no device") }).choose(boot);
  expect(chosen).toEqual({ accelerator: "tcg", reason: "no device" });
  expect(probes).toBe(0);
});

test("what the settings say is not questioned", async () => {
  expect((await make(false, { wanted: "kvm" }).choose(boot)).accelerator).toBe("kvm");
  expect(probes).toBe(0);
});
