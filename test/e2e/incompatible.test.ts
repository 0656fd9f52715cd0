/**
 * C13: a checkpoint that this host or these settings cannot honour is refused with the reason before
 * any byte of it is loaded, is kept, and a cold start from the disk is the way on.
 *
 * The settings are changed in the stored row while no daemon runs; the host by a program in the path
 * that is QEMU but for what it says about itself.
 */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { MIB } from "@perdure/protocol";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { machinesOf, refusal } from "./host-view.ts";

const under = new DaemonUnderTest();
let programs: string;

beforeAll(async () => {
  programs = mkdtempSync(join(tmpdir(), "perdure-qemu-"));
  // VMs run as other users.
  chmodSync(programs, 0o755);
  await under.start();
  for (const name of ["sized", "moved"]) {
    await under.client.create({ name });
    await under.sh(name, "echo on disk > /root/kept; echo in memory > /dev/shm/kept");
    await under.client.sleep(name);
  }
});
afterAll(async () => {
  rmSync(programs, { recursive: true, force: true });
  expect(await under.end()).toEqual([]);
});

test("C13 another size is refused with every reason, the checkpoint is kept, the disk starts cold", async () => {
  const before = await under.client.show("sized");
  const checkpoints = await under.client.checkpoints("sized");
  await under.kill();
  changeShape(before.id, {
    memoryBytes: 640 * MIB,
    cpus: 2,
    diskBytes: before.shape.diskBytes + MIB,
  });
  await under.start();

  for (const wake of [
    () => under.client.wake("sized"),
    () => under.client.exec("sized", ["/bin/true"]),
    () => under.client.recover("sized", { from: "checkpoint" }),
  ]) {
    const error = await refusal(wake());
    expect(error.code).toBe("checkpoint_incompatible");
    expect(error.message).toContain(`memory in bytes was "${512 * MIB}" and is "${640 * MIB}"`);
    expect(error.message).toContain('number of CPUs was "1" and is "2"');
    // A disk may be larger than at the cut.
    expect(error.message).not.toContain("disk size");
    expect(error.hint).toContain("perdure recover sized --from disk");
  }
  await expectUntouched("sized", before.head, checkpoints);

  const { report } = await under.client.recover("sized", { from: "disk" });
  expect(report).toMatchObject({ route: "recover", cut: { memory: false } });
  expect(await under.sh("sized", "cat /root/kept; ls /dev/shm; nproc")).toBe("on disk\n2");
  const kibibytes = Number(await under.sh("sized", "awk '/MemTotal/ {print $2}' /proc/meminfo"));
  expect(kibibytes).toBeGreaterThan(512 * 1024);
  // The memory that was not taken is kept under a name.
  const kept = await under.client.checkpoints("sized");
  expect(kept.filter(({ id }) => id === before.head)).toMatchObject([{ memory: true }]);
  await under.client.remove("sized");
});

test("C13 an older VMM and one without the machine type are refused, a newer one wakes it", async () => {
  const before = await under.client.show("moved");
  const checkpoints = await under.client.checkpoints("moved");
  await under.kill();
  await under.start(qemuThatSays("7.1.9"));
  const error = await refusal(under.client.wake("moved"));
  expect(error.code).toBe("checkpoint_incompatible");
  expect(error.message).toMatch(/VMM version 7\.1\.9 is older than \d/);
  expect(error.hint).toContain("perdure recover moved --from disk");
  await expectUntouched("moved", before.head, checkpoints);
  await under.kill();

  await expect(under.start(qemuThatSays("7.9.9", false))).rejects.toThrow(
    /does not have the machine type "pc-i440fx-[\d.]+" \(host_not_ready\)/,
  );
  await under.kill();

  await under.start(qemuThatSays("7.9.9"));
  await expectUntouched("moved", before.head, checkpoints);
  const { report } = await under.client.wake("moved");
  expect(report).toMatchObject({ route: "wake", cut: { checkpoint: before.head, memory: true } });
  expect(await under.sh("moved", "cat /root/kept /dev/shm/kept")).toBe("on disk\nin memory");
});

/** Still asleep at the same checkpoint, which is listed and lies on the disk; and no VM of it. */
async function expectUntouched(
  name: string,
  head: string | null,
  checkpoints: readonly unknown[],
): Promise<void> {
  const agent = await under.client.show(name);
  expect(agent).toMatchObject({ state: "asleep", head, generation: 1, failure: null });
  expect(await under.client.checkpoints(name)).toEqual(checkpoints);
  expect(machinesOf(under, agent.id)).toEqual([]);
}

/** Changes the recorded size of an agent while no daemon runs. */
function changeShape(id: string, shape: Readonly<Record<string, number>>): void {
  const database = new DatabaseSync(join(under.home, "perdure.db"));
  try {
    const statement =
      "UPDATE agent SET document = json_set(document, '$.shape', json(?)) WHERE id = ?";
    const { changes } = database.prepare(statement).run(JSON.stringify(shape), id);
    expect(changes).toBe(1);
  } finally {
    database.close();
  }
}

/** The environment with a QEMU that claims this version, and perhaps not our machine type. */
function qemuThatSays(version: string, withMachineType = true): Record<string, string> {
  const path = process.env["PATH"] ?? "";
  const real = `PATH="${path}" exec qemu-system-x86_64 "$@"`;
  const machines = withMachineType ? real : 'echo "pc-i440fx-9.9 Standard PC"';
  const program = `#!/bin/sh
    case "$*" in
      --version) echo "QEMU emulator version ${version}" ;;
      "-machine help") ${machines} ;;
      *) ${real} ;;
    esac\n`;
  writeFileSync(join(programs, "qemu-system-x86_64"), program, { mode: 0o755 });
  return { PATH: `${programs}:${path}` };
}
