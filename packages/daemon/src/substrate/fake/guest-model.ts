/**
 * What runs inside a fake machine. The substrate knows nothing of it but this: it can be stopped, its
 * state becomes memory, and it is made again from memory at a wake, or from the disk alone at a boot.
 */
import type { MachineEvent } from "../../core/ports/substrate.ts";
import type { FakeDisk } from "./fake-disk.ts";

/** What the guest has of its machine. */
export interface GuestSeat {
  readonly machine: string;
  readonly disk: FakeDisk | null;
  /** What a guest that boots finds. */
  readonly diskBytes: number;
  /** What the guest, or the host below it, does to the machine: a reboot, a panic, a crash… */
  happen(kind: MachineEvent["kind"], detail?: string): void;
}

export interface GuestModel {
  /** The CPUs run from here on. */
  resume(): void;
  /** The CPUs stand still: nothing inside changes until `resume`. */
  halt(): void;
  /** Its clock was moved before it runs for the first time. */
  advance?(ms: number): void;
  /** It is told how large its disk is. */
  diskGrown?(bytes: number): void;
  /** All that the guest knows, for memory. Called while it is halted. */
  save(): Uint8Array;
  /** The process is gone. */
  end(reason: string): void;
}

/** `saved` is what `save` gave at the cut; null at a boot without memory. */
export type GuestMaker = (seat: GuestSeat, saved: Uint8Array | null) => GuestModel;
