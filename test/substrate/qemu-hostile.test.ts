/** What only a real VM process can do wrong, and what it may not reach. */
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, stat, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { PAGE_BYTES, PerdureError, type Digest } from "@perdure/protocol";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import type { Machine, MachineSpec } from "../../packages/daemon/src/core/ports/substrate.ts";
import type { QemuSubstrate } from "../../packages/daemon/src/substrate/qemu/qemu-substrate.ts";
import { QmpClient } from "../../packages/daemon/src/substrate/qemu/qmp.ts";
import { readThroughMonitor } from "../../packages/daemon/src/substrate/qemu/monitor-memory.ts";
import { RunFolder } from "../../packages/daemon/src/substrate/qemu/run-folder.ts";
import { testClock, type TestHome } from "./home.ts";
import { ProbeGuest } from "./probe-guest.ts";
import { makeLayer, qemuSubject } from "./qemu-subject.ts";

const run = promisify(execFile);
const isRoot = process.getuid?.() === 0;

describe("QEMU, hostile or hanging", () => {
  let home: TestHome;
  let substrate: QemuSubstrate;
  let spec: MachineSpec;
  let devices: Uint8Array;
  let close: () => Promise<void>;
  const machines: Machine[] = [];
  const guests: ProbeGuest[] = [];

  beforeAll(async () => {
    const subject = await qemuSubject({ own: isRoot });
    ({ home } = subject);
    close = () => subject.close();
    substrate = await home.open({ own: isRoot });
    const path = await home.newPath("base");
    const chain = { imagePath: null, layerPaths: [await newLayer()] };
    const template = await substrate.bootTemplate(subject.spec, chain, path);
    const guest = new ProbeGuest(template.linkPath);
    await template.run();
    await guest.ready();
    await template.pause();
    devices = await template.saveDevices();
    guest.close();
    await template.kill();
    const base = { kind: "template", digest: "0".repeat(64) as Digest, path } as const;
    spec = { ...subject.spec, base };
  });

  afterEach(async () => {
    for (const guest of guests.splice(0)) guest.close();
    for (const machine of machines.splice(0)) await machine.kill();
  });

  afterAll(async () => {
    await substrate.close();
    await close();
  });

  async function wake(
    layerPath: string,
    on: QemuSubstrate = substrate,
  ): Promise<{ machine: Machine; guest: ProbeGuest }> {
    const machine = await on.takeSpare(spec);
    machines.push(machine);
    const guest = new ProbeGuest(machine.linkPath);
    guests.push(guest);
    await machine.attachDisk({ imagePath: null, layerPaths: [layerPath] });
    await machine.loadDevices(devices);
    await machine.run();
    await guest.ready();
    return { machine, guest };
  }

  async function newLayer(): Promise<string> {
    const path = await home.newPath("layer.qcow2");
    await makeLayer(path);
    return path;
  }

  test("a process that hangs is noticed within the deadline and can be ended", async () => {
    const hasty = await home.open({ own: isRoot, clock: testClock(30) });
    const { machine } = await wake(await newLayer(), hasty);
    process.kill(machine.record.pid, "SIGSTOP");
    const began = performance.now();
    const error = await machine.pause().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(PerdureError);
    expect((error as PerdureError).message).toContain("no answer within 30000 ms");
    expect(performance.now() - began).toBeLessThan(10_000);
    // From then on nothing waits for it.
    const again = performance.now();
    await expect(machine.isRunning()).rejects.toThrow("hangs");
    expect(performance.now() - again).toBeLessThan(10_000);
    await machine.kill();
    await expect(stat(`/proc/${machine.record.pid}`)).rejects.toThrow();
    await hasty.close();
  });

  test("a guest that floods its console fills nothing", async () => {
    const { machine, guest } = await wake(await newLayer());
    await guest.floodConsole(512 * 1024);
    const tail = await machine.consoleTail();
    expect(tail.length).toBeLessThanOrEqual(4096);
    expect(tail).toMatch(/x{100}/);
    const files = await readdir(machine.record.runDir, { recursive: true, withFileTypes: true });
    for (const file of files.filter((entry) => entry.isFile())) {
      expect((await stat(join(file.parentPath, file.name))).size).toBeLessThan(16 * 1024);
    }
  });

  test("a guest that floods the link at the cut answers after the wake", async () => {
    const { machine, guest } = await wake(await newLayer());
    guest.say(`flood-link ${64 * 1024 * 1024}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await machine.pause();
    const indexes = await machine.privatePages();
    const batches: PageBatch[] = [];
    for await (const batch of machine.readPages(indexes)) batches.push(batch);
    const flooded = await machine.saveDevices();
    await machine.kill();
    const woken = await substrate.takeSpare(spec);
    machines.push(woken);
    const again = new ProbeGuest(woken.linkPath);
    guests.push(again);
    await woken.attachDisk({ imagePath: null, layerPaths: [await newLayer()] });
    await woken.injectMemory(asyncOf(batches));
    await woken.loadDevices(flooded);
    await woken.run();
    await again.ready();
    expect(await again.ticks()).toBeGreaterThan(0);
  });

  test.runIf(isRoot)("a full disk of the host pauses the VM, which goes on with room", async () => {
    const folder = join(home.path, "data", "small");
    await mkdir(folder);
    await run("mount", ["-t", "tmpfs", "-o", "size=24m,mode=711", "tmpfs", folder]);
    try {
      const filler = join(folder, "filler");
      await mkdir(join(folder, "chain"));
      const path = join(folder, "chain", "layer.qcow2");
      await makeLayer(path);
      const { machine, guest } = await wake(path);
      const { bavail, bsize } = await statfs(folder);
      await writeFile(filler, new Uint8Array(bavail * bsize - 2 * 1024 * 1024));
      const told = nextKind(machine);
      const written = guest.writeDisk(0, 8 * 1024 * 1024, 3);
      expect(await told).toBe("io-error");
      expect(await machine.isRunning()).toBe(false);
      // A later listener hears of it too; device state can be saved; trying again without room fails again.
      expect(await nextKind(machine)).toBe("io-error");
      expect((await machine.saveDevices()).length).toBeGreaterThan(1000);
      await rm(filler);
      await machine.run();
      const sum = await written;
      expect(await guest.readDisk(0, 8 * 1024 * 1024)).toBe(sum);
      expect(await machine.isRunning()).toBe(true);
      guest.close();
      await machine.kill();
    } finally {
      await run("umount", ["-l", folder]);
    }
  });

  test("sweep leaves programs alone that only look like a VM of this home", async () => {
    const { machine } = await wake(await newLayer());
    const name = `perdure-${home.homeId}-${machine.record.id}`;
    // A shell with the very tokens, a QEMU of another home, and a text that mentions the name.
    const decoys = [
      spawn("/bin/sh", ["-c", "sleep 60", "-name", name]),
      spawn("qemu-system-x86_64", [
        ...["-name", name.replace(home.homeId, "otherhome"), "-machine", "none"],
        ...["-display", "none", "-monitor", "none"],
      ]),
      spawn("sleep", ["60"], { argv0: `-name ${name}` }),
    ];
    try {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const next = await home.open({ own: isRoot });
      expect(await next.sweep([])).toBe(1);
      for (const decoy of decoys) expect(decoy.exitCode ?? decoy.signalCode).toBeNull();
      // The pid of a record that now is another program's is never adopted, and survives.
      const { pid } = decoys[0] ?? {};
      const record = { ...machine.record, pid: pid ?? 0 };
      expect(await next.adopt(record, spec)).toBeNull();
      expect(decoys[0]?.exitCode).toBeNull();
      await next.close();
    } finally {
      for (const decoy of decoys) decoy.kill("SIGKILL");
    }
  });

  test.runIf(isRoot)("a VM process has limits in a control group of its own", async (context) => {
    const { cgroups } = await substrate.describeHost();
    context.skip(cgroups.kind === "none", cgroups.detail);
    const { machine } = await wake(await newLayer());
    const groups = await readFile(`/proc/${machine.record.pid}/cgroup`, "latin1");
    expect(groups).toContain(`/perdure-${home.homeId}/${machine.record.id}`);
    const limits = await readFile(`/proc/${machine.record.pid}/limits`, "latin1");
    expect(limits).toMatch(/Max core file size +0 +0/);
    const status = await readFile(`/proc/${machine.record.pid}/status`, "latin1");
    expect(status).toMatch(/^Seccomp:\s2$/m);
    expect(status).toMatch(/^NoNewPrivs:\s1$/m);
    expect(status).toMatch(/^CapEff:\s0+$/m);
    expect(status).toMatch(/^CapBnd:\s0+$/m);
  });

  test.runIf(isRoot)("a VM process reaches nothing of another's", async () => {
    const basePath = await home.newPath("base");
    await writeFile(basePath, "");
    await run("truncate", ["-s", String(spec.shape.memoryBytes), basePath]);
    const base = { kind: "template", digest: "2".repeat(64) as Digest, path: basePath } as const;
    const spare = await substrate.takeSpare({ ...spec, base, tenant: "other" });
    machines.push(spare);
    const layers = [await newLayer(), await newLayer()];
    const [mine, theirs] = [await wake(layers[0] ?? ""), await wake(layers[1] ?? "")];
    const neighbour = mine.machine.record.uid;
    expect(new Set([neighbour, theirs.machine.record.uid, spare.record.uid]).size).toBe(3);
    const { pid, runDir } = theirs.machine.record;
    const asNeighbour = async (script: string): Promise<boolean> => {
      const user = [`--reuid=${neighbour}`, `--regid=${neighbour}`, `--groups=${neighbour}`];
      const args = [...user, "--bounding-set=-all", "--inh-caps=-all", "sh", "-c", script];
      return run("setpriv", args).then(
        () => true,
        () => false,
      );
    };
    const reach: Record<string, boolean> = {
      "own layer": await asNeighbour(`exec 3<>${layers[0] ?? ""}`),
      "other layer": await asNeighbour(`exec 3<${layers[1] ?? ""}`),
      "other tenant's base, to write": await asNeighbour(`exec 3<>${basePath}`),
      "other tenant's base, to read": await asNeighbour(`exec 3<${basePath}`),
      "other memory": await asNeighbour(`exec 3</proc/${pid}/mem`),
      "other page map": await asNeighbour(`head -c 1 /proc/${pid}/maps`),
      "other run folder": await asNeighbour(`ls ${runDir}/io`),
      "other sockets": await asNeighbour(`test -e ${theirs.machine.linkPath}`),
      "own note": await asNeighbour(`exec 3<${mine.machine.record.runDir}/machine.json`),
      "another's process": await asNeighbour(`kill -0 ${pid}`),
    };
    expect(reach).toEqual({
      ...Object.fromEntries(Object.keys(reach).map((what) => [what, false])),
      "own layer": true,
    });
  });

  test("memory read through the monitor is what is read from the process", async () => {
    const { machine, guest } = await wake(await newLayer());
    await guest.hold(4 * 1024 * 1024, 5);
    await machine.pause();
    const indexes = await machine.privatePages();
    const direct = new Map<number, string>();
    for await (const batch of machine.readPages(indexes)) addTo(direct, batch);
    await machine.release();
    // The same process, asked by one who may not look into it.
    const { record } = machine;
    const folder = new RunFolder(home.runDir, record.id);
    const qmp = await QmpClient.connect(folder.monitorPath, testClock(), 5000);
    const asked = new Map<number, string>();
    const { memoryBytes } = spec.shape;
    for await (const batch of readThroughMonitor(qmp, folder, memoryBytes, indexes)) {
      addTo(asked, batch);
    }
    qmp.close();
    expect(asked).toEqual(direct);
    expect(asked.size).toBe(indexes.length);
    machines.push((await substrate.adopt(record, spec)) ?? machine);
  });

  test("a spare holds no kernel, and what a guest can see of it is as in a machine that boots", async () => {
    const spare = await substrate.takeSpare(spec);
    machines.push(spare);
    const booted = await substrate.bootCold(spec, { imagePath: null, layerPaths: [] });
    machines.push(booted);
    const kernelBytes = (await stat(spec.boot.kernelPath)).size;
    expect(await anonymousBytes(spare)).toBeLessThan(
      (await anonymousBytes(booted)) - kernelBytes * 0.75,
    );
    // Nothing is left of what it was given instead.
    expect((await readdir(spare.record.runDir)).sort()).toEqual([
      "io",
      "link",
      "machine.json",
      "qmp",
    ]);
    expect(await seenOf(spare)).toEqual(await seenOf(booted));
  });

  /** RAM blocks, option ROMs and devices, as the monitor tells them. */
  async function seenOf(machine: Machine): Promise<string[]> {
    await machine.release();
    const folder = new RunFolder(home.runDir, machine.record.id);
    const qmp = await QmpClient.connect(folder.monitorPath, testClock(), 5000);
    const told: string[] = [];
    for (const what of ["info ramblock", "info roms", "info qtree", "info pci"]) {
      told.push(String(await qmp.execute("human-monitor-command", { "command-line": what })));
    }
    qmp.close();
    machines.push((await substrate.adopt(machine.record, spec)) ?? machine);
    return told;
  }

  test("a host without what is asked says so", async () => {
    const report = await substrate.describeHost();
    expect(report.qemuVersion).toMatch(/^\d+\.\d+/);
    expect(report.users.kind).toBe(isRoot ? "own" : "shared");
    expect(report.ptrace.kind).toBe("any");
    expect(report.baseAccess).toBe(substrate.needsWritableBase ? "writable" : "read-only");
  });
});

/** Memory that the process has from the host's kernel directly, such as large buffers; not its heap. */
async function anonymousBytes(machine: Machine): Promise<number> {
  const text = await readFile(`/proc/${machine.record.pid}/smaps`, "latin1");
  const areas = text.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const unnamed = areas.filter((area) => /^\S+ rw-p \S+ \S+ 0 *$/m.test(area));
  const kib = unnamed.map((area) => Number(/^Anonymous: +(\d+) kB$/m.exec(area)?.[1]));
  return kib.reduce((sum, bytes) => sum + bytes, 0) * 1024;
}

function nextKind(machine: Machine): Promise<string> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("Nothing happened in 2 minutes")), 120_000);
    machine.onEvent(({ kind }) => {
      clearTimeout(timer);
      resolve(kind);
    });
  });
}

function addTo(pages: Map<number, string>, { indexes, bytes }: PageBatch): void {
  indexes.forEach((index, at) => {
    const page = bytes.subarray(at * PAGE_BYTES, (at + 1) * PAGE_BYTES);
    pages.set(index, createHash("sha256").update(page).digest("hex"));
  });
}

async function* asyncOf<T>(items: readonly T[]): AsyncGenerator<T> {
  for (const item of items) yield await Promise.resolve(item);
}
