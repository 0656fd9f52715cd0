/**
 * Contract of the port `Substrate`, for every kind of it. What a subject cannot do it names in `missing`
 * with the reason; the tests of that are skipped with it.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { PAGE_BYTES, PerdureError, type Digest, type ErrorCode } from "@perdure/protocol";
import { afterAll, afterEach, beforeAll, describe, expect, test, type TestContext } from "vitest";
import { PAGE_BATCH_BYTES_MAX, type PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import type {
  DiskChain,
  Machine,
  MachineEvent,
  MachineRecord,
  MachineSpec,
  Substrate,
} from "../../packages/daemon/src/core/ports/substrate.ts";

/** A program inside a machine that does what it is told. */
export interface TestGuest {
  /** Answers once it is up, or again after a wake. */
  ready(): Promise<void>;
  /** Fills so much memory of its own from the seed; the checksum. */
  hold(bytes: number, seed: number): Promise<string>;
  held(): Promise<string>;
  /** Writes through to the disk; the checksum. */
  writeDisk(offset: number, bytes: number, seed: number): Promise<string>;
  readDisk(offset: number, bytes: number): Promise<string>;
  /** Grows while it runs. */
  ticks(): Promise<number>;
  end(how: "reset" | "shutdown" | "panic"): void;
  close(): void;
}

export type SubstrateCapability = "crash" | "pool";

export interface SubstrateSubject {
  readonly spec: Omit<MachineSpec, "base">;
  /** A daemon's substrate over the same host and home; several may follow one another. */
  open(): Promise<Substrate>;
  /** Connects to the machine's link and reads from now on. */
  guest(machine: Machine): TestGuest;
  /** Path of a base that does not exist yet. */
  newBasePath(): Promise<string>;
  /** An empty layer of the spec's disk size. */
  newLayer(): Promise<string>;
  /** Ends the process from outside, as a crash would. */
  crash(record: MachineRecord): void;
  readonly missing: Readonly<Partial<Record<SubstrateCapability, string>>>;
  close(): Promise<void>;
}

const HELD_BYTES = 4 * 1024 * 1024;
const DISK_BYTES = 64 * 1024;

/** A cut as plain bytes. */
interface Cut {
  readonly indexes: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly devices: Uint8Array;
  readonly layers: readonly string[];
}

export function substrateContract(name: string, make: () => Promise<SubstrateSubject>): void {
  describe(`substrate contract: ${name}`, () => {
    let subject: SubstrateSubject;
    let substrate: Substrate;
    let spec: MachineSpec;
    let template: Cut;
    let held: string;
    let onDisk: string;
    const machines: Machine[] = [];
    const guests: TestGuest[] = [];

    beforeAll(async () => {
      subject = await make();
      substrate = await subject.open();
      const path = await subject.newBasePath();
      const layer = await subject.newLayer();
      const chain = { imagePath: null, layerPaths: [layer] };
      const machine = mine(await substrate.bootTemplate(subject.spec, chain, path));
      const guest = guestOf(machine);
      await machine.run();
      await guest.ready();
      held = await guest.hold(HELD_BYTES, 1);
      onDisk = await guest.writeDisk(0, DISK_BYTES, 2);
      await machine.pause();
      const devices = await machine.saveDevices();
      await machine.kill();
      const none = { indexes: new Uint32Array(0), bytes: new Uint8Array(0) };
      template = { ...none, devices, layers: [layer] };
      const base = { kind: "template", digest: "0".repeat(64) as Digest, path } as const;
      spec = { ...subject.spec, base };
    });

    afterEach(async () => {
      for (const guest of guests.splice(0)) guest.close();
      for (const machine of machines.splice(0)) await machine.kill();
    });

    afterAll(async () => {
      await substrate.close();
      await subject.close();
    });

    function needs(context: TestContext, capability: SubstrateCapability): void {
      const why = subject.missing[capability];
      context.skip(why !== undefined, why);
    }

    /** Ended after the test, whatever happens. */
    function mine(machine: Machine): Machine {
      machines.push(machine);
      return machine;
    }

    function guestOf(machine: Machine): TestGuest {
      const guest = subject.guest(machine);
      guests.push(guest);
      return guest;
    }

    /** A spare with the cut in it and a new layer on top, paused. */
    async function load(
      cut: Cut,
      prepared = false,
    ): Promise<{ machine: Machine; guest: TestGuest; chain: DiskChain }> {
      const machine = mine(await substrate.takeSpare(spec));
      const guest = guestOf(machine);
      const layerPaths = [...cut.layers, await subject.newLayer()];
      const chain = { imagePath: null, layerPaths };
      if (prepared) await machine.prepareWake(chain);
      await Promise.all([machine.attachDisk(chain), machine.injectMemory(batchesOf(cut))]);
      await machine.loadDevices(cut.devices);
      return { machine, guest, chain };
    }

    async function wake(
      cut: Cut,
      prepared = false,
    ): Promise<{ machine: Machine; guest: TestGuest; chain: DiskChain }> {
      const woken = await load(cut, prepared);
      await woken.machine.run();
      await woken.guest.ready();
      return woken;
    }

    /** Pauses and captures; what was the top is immutable then, as of any checkpoint. */
    async function cutOf(machine: Machine, chain: DiskChain): Promise<Cut> {
      await machine.pause();
      const indexes = await machine.privatePages();
      const bytes = await pagesOf(machine, indexes);
      const devices = await machine.saveDevices();
      await machine.addLayer(await subject.newLayer());
      return { indexes, bytes, devices, layers: chain.layerPaths };
    }

    test("facts of a spec are those of its machines", async () => {
      const facts = await substrate.facts(spec);
      expect(await substrate.facts(spec)).toEqual(facts);
      expect(mine(await substrate.takeSpare(spec)).facts).toEqual(facts);
      const other = { ...spec, shape: { ...spec.shape, cpus: 2 } };
      expect((await substrate.facts(other)).deviceDigest).not.toBe(facts.deviceDigest);
    });

    test("a template wakes with its memory and its disk", async () => {
      const { guest } = await wake(template);
      expect(await guest.held()).toBe(held);
      expect(await guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
    });

    test("a cut restored in another process is equal, byte for byte", async () => {
      const first = await wake(template);
      const before = await first.guest.ticks();
      const changed = await first.guest.hold(HELD_BYTES, 3);
      const cut = await cutOf(first.machine, first.chain);
      expect(cut.indexes).toEqual(cut.indexes.toSorted());
      expect(cut.indexes.length).toBeGreaterThanOrEqual(HELD_BYTES / PAGE_BYTES);
      const second = await load(cut);
      // All of the memory, so that a page that the scan overlooks shows.
      const pages = spec.shape.memoryBytes / PAGE_BYTES;
      const every = Uint32Array.from({ length: pages }, (_, index) => index);
      const then = sha256(await pagesOf(first.machine, every));
      expect(sha256(await pagesOf(second.machine, every))).toBe(then);
      await second.machine.run();
      await second.guest.ready();
      expect(await second.guest.held()).toBe(changed);
      expect(await second.guest.ticks()).toBeGreaterThanOrEqual(before);
    });

    test("a cut of a restored machine restores again, three times over", async () => {
      let cut = template;
      const sums: string[] = [];
      const written: string[] = [];
      for (let cycle = 0; cycle < 3; cycle++) {
        const { machine, guest, chain } = await wake(cut);
        if (cycle > 0) expect(await guest.held()).toBe(sums.at(-1));
        sums.push(await guest.hold(HELD_BYTES, 10 + cycle));
        written.push(await guest.writeDisk((1 + cycle) * DISK_BYTES, DISK_BYTES, 20 + cycle));
        cut = await cutOf(machine, chain);
        guest.close();
        await machine.kill();
      }
      const { guest } = await wake(cut);
      expect(await guest.held()).toBe(sums.at(-1));
      expect(await guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
      for (const [cycle, sum] of written.entries()) {
        expect(await guest.readDisk((1 + cycle) * DISK_BYTES, DISK_BYTES)).toBe(sum);
      }
    });

    test("two machines woken from one cut go separate ways", async () => {
      const parent = await wake(template);
      const common = await parent.guest.hold(HELD_BYTES, 4);
      const cut = await cutOf(parent.machine, parent.chain);
      const [first, second] = [await wake(cut), await wake(cut)];
      const changed = await first.guest.hold(HELD_BYTES, 5);
      await first.guest.writeDisk(0, DISK_BYTES, 6);
      expect(await second.guest.held()).toBe(common);
      expect(await second.guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
      expect(await first.guest.held()).toBe(changed);
    });

    test("a page that is zero in the cut is zero after the wake", async () => {
      const parent = await wake(template);
      await parent.guest.hold(HELD_BYTES, 7);
      const cut = await cutOf(parent.machine, parent.chain);
      const machine = mine(await substrate.takeSpare(spec));
      const { indexes } = cut;
      await machine.injectMemory(batchesOf({ ...cut, bytes: new Uint8Array(cut.bytes.length) }));
      const bytes = await pagesOf(machine, indexes);
      expect(bytes.every((byte) => byte === 0)).toBe(true);
    });

    test("many pages come in batches within the limit, in order", async () => {
      const { machine, guest, chain } = await wake(template);
      await guest.hold(3 * PAGE_BATCH_BYTES_MAX, 8);
      const cut = await cutOf(machine, chain);
      const indexes: number[] = [];
      let batches = 0;
      for await (const batch of machine.readPages(cut.indexes)) {
        expect(batch.bytes.length).toBe(batch.indexes.length * PAGE_BYTES);
        expect(batch.bytes.length).toBeLessThanOrEqual(PAGE_BATCH_BYTES_MAX);
        indexes.push(...batch.indexes);
        batches++;
      }
      expect(indexes).toEqual([...cut.indexes]);
      expect(batches).toBeGreaterThan(2);
    });

    test("a layer that was covered does not change any more", async () => {
      const { machine, guest, chain } = await wake(template);
      const older = await guest.writeDisk(0, DISK_BYTES, 9);
      await machine.pause();
      await machine.addLayer(await subject.newLayer());
      const covered = chain.layerPaths.at(-1) ?? "";
      const digest = sha256(await readFile(covered));
      await machine.run();
      const newer = await guest.writeDisk(0, DISK_BYTES, 10);
      expect(newer).not.toBe(older);
      expect(await guest.readDisk(0, DISK_BYTES)).toBe(newer);
      expect(sha256(await readFile(covered))).toBe(digest);
      guest.close();
      await machine.kill();
      const layerPaths = [...chain.layerPaths, await subject.newLayer()];
      const zero = { ...spec, base: { kind: "zero" } } as const;
      const cold = mine(await substrate.bootCold(zero, { imagePath: null, layerPaths }));
      const coldGuest = guestOf(cold);
      await cold.run();
      await coldGuest.ready();
      expect(await coldGuest.readDisk(0, DISK_BYTES)).toBe(older);
    });

    test("a cut and a wake that were prepared are like any other, and another layer may be taken for it", async () => {
      const { machine, guest, chain } = await wake(template);
      await machine.prepareCut(await subject.newLayer());
      await guest.hold(PAGE_BATCH_BYTES_MAX, 15);
      const layer = await subject.newLayer();
      await machine.prepareCut(layer);
      const changed = await guest.hold(2 * PAGE_BATCH_BYTES_MAX, 11);
      const older = await guest.writeDisk(0, DISK_BYTES, 12);
      const { batches, devices } = await machine.cut(layer);
      expect(await machine.isRunning()).toBe(false);
      const { indexes, bytes } = joined(batches);
      await machine.run();
      await guest.writeDisk(0, DISK_BYTES, 13);
      const second = await cutOf(machine, { ...chain, layerPaths: [...chain.layerPaths, layer] });
      expect(second.indexes.length).toBeGreaterThan(0);
      guest.close();
      await machine.kill();
      const woken = await wake({ indexes, bytes, devices, layers: chain.layerPaths }, true);
      expect(await woken.guest.held()).toBe(changed);
      expect(await woken.guest.readDisk(0, DISK_BYTES)).toBe(older);
    });

    test("layers are merged into the top that is written, and into no other", async () => {
      const { machine, guest, chain } = await wake(template);
      const onDisk = await guest.writeDisk(0, DISK_BYTES, 14);
      const next = await subject.newLayer();
      const [below = ""] = chain.layerPaths;
      await refuses(machine.mergeLayers(below, next), "machine_failed");
      await machine.pause();
      await machine.addLayer(next);
      await machine.run();
      await refuses(machine.mergeLayers(below, chain.layerPaths.at(-1) ?? ""), "machine_failed");
      await machine.mergeLayers(below, next);
      expect(await guest.readDisk(0, DISK_BYTES)).toBe(onDisk);
    });

    test("a machine of a record lives until it is ended by it", async () => {
      const { machine } = await wake(template);
      const { record } = machine;
      expect(await substrate.isAlive(record)).toBe(true);
      const other = { ...record, startTicks: record.startTicks + 1 };
      expect(await substrate.isAlive(other)).toBe(false);
      await substrate.end(other);
      expect(await machine.isRunning()).toBe(true);
      await substrate.end(record);
      expect(await substrate.isAlive(record)).toBe(false);
      await substrate.end(record);
    });

    test("run and pause may be repeated, and time stands still in between", async () => {
      const { machine, guest } = await wake(template);
      await machine.run();
      expect(await machine.isRunning()).toBe(true);
      await machine.pause();
      await machine.pause();
      expect(await machine.isRunning()).toBe(false);
      const first = await machine.privatePages();
      expect(await pagesOf(machine, first)).toEqual(await pagesOf(machine, first));
      await machine.run();
      expect(await guest.held()).toBe(held);
    });

    test("steps of a wake are refused in the wrong order", async () => {
      const spare = mine(await substrate.takeSpare(spec));
      await refuses(spare.run(), "machine_failed");
      const { machine, chain } = await wake(template);
      await refuses(machine.loadDevices(template.devices), "machine_failed");
      const page = { indexes: Uint32Array.of(0), bytes: new Uint8Array(PAGE_BYTES) };
      await refuses(machine.injectMemory(batchesOf(page)), "machine_failed");
      await refuses(machine.attachDisk(chain), "machine_failed");
    });

    test("device state that is none is refused", async () => {
      const spare = mine(await substrate.takeSpare(spec));
      await refuses(spare.loadDevices(new Uint8Array(1000)), "machine_failed");
    });

    for (const how of ["reset", "shutdown", "panic"] as const) {
      test(`a guest's ${how} is told, also to those who ask later`, async () => {
        const { machine, guest } = await wake(template);
        const event = nextEvent(machine);
        const began = performance.now();
        guest.end(how);
        expect((await event).kind).toBe(how);
        expect(performance.now() - began).toBeLessThan(5000);
        expect((await nextEvent(machine)).kind).toBe(how);
        expect(await machine.isRunning()).toBe(false);
        await refuses(machine.run(), "machine_failed");
      });
    }

    test("a process that dies is told at once, and its machine fails from then on", async (context) => {
      needs(context, "crash");
      const { machine } = await wake(template);
      const event = nextEvent(machine);
      subject.crash(machine.record);
      expect((await event).kind).toBe("exited");
      await refuses(machine.pause(), "machine_failed");
      await refuses(machine.isRunning(), "machine_failed");
      await machine.kill();
    });

    test("kill may be repeated, and nothing works after it", async () => {
      const { machine } = await wake(template);
      await Promise.all([machine.kill(), machine.kill()]);
      await machine.kill();
      await refuses(machine.run(), "machine_failed");
      expect(await substrate.adopt(machine.record, spec)).toBeNull();
    });

    test("a released machine runs on and is adopted by the next daemon", async () => {
      const { machine, guest, chain } = await wake(template);
      const changed = await guest.hold(HELD_BYTES, 11);
      guest.close();
      await machine.release();
      const next = await subject.open();
      const adopted = mine((await next.adopt(machine.record, spec)) ?? fail("Not adopted"));
      expect(adopted.facts).toEqual(machine.facts);
      expect(await adopted.isRunning()).toBe(true);
      const again = guestOf(adopted);
      await again.ready();
      expect(await again.held()).toBe(changed);
      const cut = await cutOf(adopted, chain);
      const { guest: woken } = await wake(cut);
      expect(await woken.held()).toBe(changed);
      await next.close();
    });

    test("what happened while no daemon watched is told after the adoption", async () => {
      const { machine, guest } = await wake(template);
      const event = nextEvent(machine);
      guest.end("reset");
      await event;
      await machine.release();
      const adopted = mine((await substrate.adopt(machine.record, spec)) ?? fail("Not adopted"));
      expect((await nextEvent(adopted)).kind).toBe("reset");
    });

    test("only the very process of a record is adopted", async () => {
      const { machine } = await wake(template);
      const { record } = machine;
      await machine.release();
      const others: MachineRecord[] = [
        { ...record, startTicks: record.startTicks + 1 },
        { ...record, pid: process.pid },
        { ...record, hostBootId: "another boot" },
      ];
      for (const other of others) expect(await substrate.adopt(other, spec)).toBeNull();
      expect(mine((await substrate.adopt(record, spec)) ?? fail("Not adopted")).record.pid).toBe(
        record.pid,
      );
    });

    test("sweep ends what is not kept and nothing else", async () => {
      const [kept, dropped] = [await wake(template), await wake(template)];
      for (const { machine } of [kept, dropped]) await machine.release();
      const next = await subject.open();
      expect(await next.sweep([kept.machine.record.id])).toBe(1);
      expect(await next.adopt(dropped.machine.record, spec)).toBeNull();
      const adopted = mine((await next.adopt(kept.machine.record, spec)) ?? fail("Not adopted"));
      expect(await adopted.isRunning()).toBe(true);
      expect(await next.sweep([kept.machine.record.id])).toBe(0);
      await next.close();
      expect(await adopted.isRunning()).toBe(true);
    });

    test("spares are handed out once, and dead ones never", async (context) => {
      needs(context, "crash");
      const other = await subject.open();
      other.keepSpares(spec, 2);
      const taken = [];
      for (let i = 0; i < 4; i++) taken.push(mine(await other.takeSpare(spec)).record.id);
      expect(new Set(taken).size).toBe(4);
      const [last] = [mine(await other.takeSpare(spec))];
      subject.crash(last.record);
      const next = mine(await other.takeSpare(spec));
      expect(await next.isRunning()).toBe(false);
      other.keepSpares(spec, 0);
      await other.close();
    });

    test("closing leaves machines in use alone", async () => {
      const other = await subject.open();
      other.keepSpares(spec, 1);
      const machine = mine(await other.takeSpare(spec));
      await other.close();
      expect(await machine.isRunning()).toBe(false);
      await machine.attachDisk({ imagePath: null, layerPaths: [await subject.newLayer()] });
      expect(await pagesOf(machine, Uint32Array.of(0))).toHaveLength(PAGE_BYTES);
    });

    test("a record is not adopted as another spec", async () => {
      const { machine } = await wake(template);
      await machine.release();
      const shape = { ...spec.shape, cpus: spec.shape.cpus + 1 };
      await refuses(substrate.adopt(machine.record, { ...spec, shape }), "machine_failed");
      mine((await substrate.adopt(machine.record, spec)) ?? fail("Not adopted"));
    });

    test("a base that does not exist is refused and leaves nothing", async () => {
      const base = { kind: "template", digest: "1".repeat(64) as Digest } as const;
      const path = await subject.newBasePath();
      await refuses(
        substrate.takeSpare({ ...spec, base: { ...base, path } }),
        "machine_start_failed",
      );
      expect(await substrate.sweep(machines.map(({ record }) => record.id))).toBe(0);
    });

    test("usage and console speak of the machine", async () => {
      const { machine, guest } = await wake(template);
      await guest.hold(HELD_BYTES, 12);
      await machine.pause();
      const usage = await machine.usage();
      expect(usage.privateBytes).toBeGreaterThan(HELD_BYTES);
      expect(usage.pssBytes).toBeGreaterThan(HELD_BYTES);
      expect((await machine.consoleTail()).length).toBeLessThanOrEqual(4096);
    });
  });
}

async function* batchesOf(cut: Pick<Cut, "indexes" | "bytes">): AsyncGenerator<PageBatch> {
  const pages = PAGE_BATCH_BYTES_MAX / PAGE_BYTES;
  for (let at = 0; at < cut.indexes.length; at += pages) {
    const indexes = cut.indexes.slice(at, at + pages);
    const bytes = cut.bytes.slice(at * PAGE_BYTES, (at + indexes.length) * PAGE_BYTES);
    yield await Promise.resolve({ indexes, bytes });
  }
}

/** The pages of a cut, which come in no order. */
function joined(batches: readonly PageBatch[]): Pick<Cut, "indexes" | "bytes"> {
  const all = batches.flatMap(({ indexes, bytes }) =>
    [...indexes].map((index, i) => ({
      index,
      page: bytes.subarray(i * PAGE_BYTES, (i + 1) * PAGE_BYTES),
    })),
  );
  const sorted = all.toSorted((a, b) => a.index - b.index);
  const indexes = Uint32Array.from(sorted, ({ index }) => index);
  expect(new Set(indexes).size).toBe(indexes.length);
  const bytes = new Uint8Array(indexes.length * PAGE_BYTES);
  sorted.forEach(({ page }, i) => bytes.set(page, i * PAGE_BYTES));
  return { indexes, bytes };
}

async function pagesOf(
  machine: Machine,
  indexes: Uint32Array<ArrayBuffer>,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(indexes.length * PAGE_BYTES);
  let at = 0;
  for await (const batch of machine.readPages(indexes)) {
    bytes.set(batch.bytes, at);
    at += batch.bytes.length;
  }
  expect(at).toBe(bytes.length);
  return bytes;
}

function nextEvent(machine: Machine): Promise<MachineEvent> {
  return new Promise((resolve) => {
    machine.onEvent(resolve);
  });
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

function fail(reason: string): never {
  throw new Error(reason);
}

async function refuses(work: Promise<unknown>, code: ErrorCode): Promise<void> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(PerdureError);
  expect((error as PerdureError).code).toBe(code);
}
