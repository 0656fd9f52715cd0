/**
 * The oracle: what the guest knew at each cut, asked of the guest itself while its CPUs stood still, not
 * of what was stored. After a wake the guest must be there again, to the unit (C11, C12).
 */
import type { CheckpointId } from "@perdure/protocol";
import type { CheckpointDraft } from "../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { FakeProcess } from "../../packages/daemon/src/substrate/fake/fake-process.ts";
import { sha256 } from "./checkpoint-folder.ts";
import { Guest } from "./guest.ts";

export interface GuestMoment {
  readonly counter: number;
  readonly ticks: number;
  readonly frozen: boolean;
  readonly reseeds: number;
  /** The counter on the disk. */
  readonly onDisk: number;
}

export class CutLog {
  readonly violations: string[] = [];
  readonly #cuts = new Map<string, GuestMoment>();
  readonly #checkpoints = new Map<CheckpointId, GuestMoment>();

  /** The devices of `process` were captured: this is the instant. */
  captured(process: FakeProcess, devices: Uint8Array): void {
    if (process.guest instanceof Guest) this.#cuts.set(sha256(devices), momentOf(process.guest));
  }

  /** A checkpoint is about to be written: what it says of itself must be so. */
  wrote(draft: CheckpointDraft, devices: Uint8Array): void {
    const moment = this.#cuts.get(sha256(devices));
    if (moment === undefined) return;
    this.#checkpoints.set(draft.checkpoint, moment);
    if (draft.frozen && !moment.frozen) {
      this.violations.push(`I4: ${draft.checkpoint} says frozen, and its workload was not`);
    }
  }

  /** What the guest knew when this checkpoint was cut. */
  of(checkpoint: CheckpointId): GuestMoment {
    const moment = this.#checkpoints.get(checkpoint);
    if (moment === undefined) throw new Error(`${checkpoint} was never cut`);
    return moment;
  }
}

export function momentOf({ memory, seat }: Guest): GuestMoment {
  const { counter, ticks, frozen, reseeds } = memory;
  return { counter, ticks, frozen, reseeds, onDisk: Number(seat.disk?.read("counter") ?? 0) };
}
