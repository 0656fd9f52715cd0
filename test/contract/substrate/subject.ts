/** What a substrate must bring along for its contract to be tested. */
import type {
  Machine,
  MachineRecord,
  MachineSpec,
  Substrate,
} from "../../../packages/daemon/src/core/ports/substrate.ts";

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
  /** Its monotonic clock, and the one that counts suspended time too. */
  clocks(): Promise<{ readonly monotonicMs: number; readonly bootMs: number }>;
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
