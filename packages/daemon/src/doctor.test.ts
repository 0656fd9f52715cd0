/** What the doctor says about room on the disk, and that a host without any is not ready. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { diagnose, freeSpace } from "./doctor.ts";

const MIB = 1024 ** 2;

test.each([
  [5000 * MIB, true, "good", /^4\.9 GiB$/],
  [4095 * MIB, true, "limited", /^4\.0 GiB, less than 4\.0 GiB$/],
  [80 * MIB, true, "limited", /^80 MiB, less than/],
  [79 * MIB, true, "missing", /could not be put to sleep/],
  [0, true, "missing", /^0 MiB, less than 80 MiB/],
  [0, false, "missing", /no agent can be created/],
])("%i bytes free, ballast %s: %s", (bytes, hasBallast, verdict, detail) => {
  const finding = freeSpace(bytes, hasBallast, "/home");
  expect(finding).toMatchObject({ subject: "free space", verdict });
  expect(finding.detail).toMatch(detail);
  if (verdict !== "good") expect(finding.advice).toContain('"/home"');
});

test("a host whose state store lives on its reserve is not ready, whatever else is right", async () => {
  const home = await mkdtemp(join(tmpdir(), "perdure-doctor-"));
  const host = {
    home,
    nodeVersion: "24.0.0",
    images: [{ name: "debian" }] as never,
    qemuVersion: "8.2.0",
    machineType: "microvm",
    accelerator: { accelerator: "kvm", reason: "it works" },
    users: { kind: "own", detail: "" },
    seccomp: true,
    cgroups: { kind: "v2", detail: "" },
    ptrace: { kind: "any", detail: "" },
    baseAccess: "read-only",
    softDirty: true,
    ksm: false,
    corePattern: "core",
  } as const;
  expect((await diagnose(host)).ready).toBe(false);
  await writeFile(join(home, "perdure.db.ballast"), "");
  const { findings } = await diagnose(host);
  expect(findings.filter(({ verdict }) => verdict === "missing")).toEqual([]);
  await rm(home, { recursive: true });
});
