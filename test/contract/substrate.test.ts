import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Digest, MachineId } from "@perdure/protocol";
import { RealFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import { FakeHost } from "../../packages/daemon/src/substrate/fake/fake-host.ts";
import { FakeSubstrate } from "../../packages/daemon/src/substrate/fake/fake-substrate.ts";
import { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import type {
  GuestModel,
  GuestSeat,
} from "../../packages/daemon/src/substrate/fake/guest-model.ts";
import { substrateContract } from "./substrate.ts";
import type { SubstrateSubject, TestGuest } from "./substrate/subject.ts";

const HEAD_BYTES = 24;

/** A guest of a fake machine: what it holds lies in its state as it would in memory. */
class FakeProgram implements GuestModel {
  readonly #seat: GuestSeat;
  #held: Uint8Array;
  #ticks: number;
  #monotonicMs: number;

  constructor(seat: GuestSeat, saved: Uint8Array | null) {
    this.#seat = seat;
    const state = Buffer.from(saved ?? new Uint8Array(HEAD_BYTES));
    this.#ticks = state.readDoubleLE(0);
    this.#monotonicMs = state.readDoubleLE(8);
    this.#held = state.subarray(HEAD_BYTES);
  }

  resume(): void {
    this.#ticks++;
  }

  halt(): void {
    this.#ticks++;
  }

  end(): void {
    this.#held = new Uint8Array(0);
  }

  save(): Uint8Array {
    const head = Buffer.alloc(HEAD_BYTES);
    head.writeDoubleLE(this.#ticks, 0);
    head.writeDoubleLE(this.#monotonicMs, 8);
    return Buffer.concat([head, this.#held]);
  }

  hold(bytes: number, seed: number): Promise<string> {
    this.#held = bytesOf(bytes, seed);
    return this.held();
  }

  held(): Promise<string> {
    return Promise.resolve(sum(this.#held));
  }

  writeDisk(offset: number, bytes: number, seed: number): Promise<string> {
    const value = sum(bytesOf(bytes, seed));
    this.#seat.disk?.write(`${offset}+${bytes}`, value);
    return Promise.resolve(value);
  }

  readDisk(offset: number, bytes: number): Promise<string> {
    return Promise.resolve(this.#seat.disk?.read(`${offset}+${bytes}`) ?? "");
  }

  advance(ms: number): void {
    this.#monotonicMs += ms;
  }

  clocks(): Promise<{ monotonicMs: number; bootMs: number }> {
    return Promise.resolve({ monotonicMs: this.#monotonicMs, bootMs: this.#monotonicMs });
  }

  ticks(): Promise<number> {
    return Promise.resolve(this.#ticks);
  }

  fall(how: "reset" | "shutdown" | "panic"): void {
    this.#seat.happen(how);
  }
}

function bytesOf(bytes: number, seed: number): Uint8Array {
  const block = createHash("sha256").update(String(seed)).digest();
  return Buffer.alloc(bytes, block);
}

function sum(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function fakeSubject(): Promise<SubstrateSubject> {
  const folder = await mkdtemp(join(tmpdir(), "perdure-fake-"));
  const programs = new Map<string, FakeProgram>();
  const host = new FakeHost(new RealFiles(), (seat, saved) => {
    const program = new FakeProgram(seat, saved);
    programs.set(seat.machine, program);
    return program;
  });
  const program = (id: MachineId): FakeProgram => {
    const found = programs.get(id);
    if (found === undefined) throw new Error(`Nothing runs in ${id}`);
    return found;
  };
  let files = 0;
  return {
    spec: {
      tenant: "default",
      shape: { memoryBytes: 128 * 1024 * 1024, cpus: 1, diskBytes: 2 * 1024 ** 3 },
      boot: {
        kernelPath: "/kernel",
        kernelDigest: "a".repeat(64) as Digest,
        initramfsPath: "/initramfs",
        initramfsDigest: "b".repeat(64) as Digest,
        commandLine: "",
        guestProtocol: 1,
      },
    },
    open: () => Promise.resolve(new FakeSubstrate({ host, faults: new Faults() })),
    // Looked up at each call: it is there once the machine was booted or loaded.
    guest: ({ record: { id } }): TestGuest => ({
      ready: () => Promise.resolve(),
      hold: (bytes, seed) => program(id).hold(bytes, seed),
      held: () => program(id).held(),
      writeDisk: (offset, bytes, seed) => program(id).writeDisk(offset, bytes, seed),
      readDisk: (offset, bytes) => program(id).readDisk(offset, bytes),
      clocks: () => program(id).clocks(),
      ticks: () => program(id).ticks(),
      end: (how) => program(id).fall(how),
      close: () => undefined,
    }),
    newBasePath: () => Promise.resolve(join(folder, `base${++files}`)),
    async newLayer() {
      const path = join(folder, `layer${++files}`);
      await writeFile(path, "");
      return path;
    },
    crash: ({ id }) => host.process(id)?.happen("exited", "crashed by the test"),
    missing: {},
    async close() {
      await rm(folder, { recursive: true });
      if (host.violations.length > 0) throw new Error(host.violations.join("; "));
    },
  };
}

substrateContract("fake", fakeSubject);
