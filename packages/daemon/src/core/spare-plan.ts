/**
 * Spare plan: for which specs a ready VM process is kept. The specs that agents used last get one
 * each; specs over a base of an agent's own get none, because nobody else could use the process.
 */
import { digestOf, type Digest } from "@perdure/protocol";
import type { MachineSpec, Substrate } from "./ports/substrate.ts";

export interface SparePlanOptions {
  /** Specs that have spares at once. */
  readonly specsMax: number;
  readonly sparesPerSpec: number;
}

export class SparePlan {
  readonly #substrate: Substrate;
  readonly #options: SparePlanOptions;
  /** Least recently used first. */
  readonly #specs = new Map<string, MachineSpec>();

  constructor(substrate: Substrate, options: SparePlanOptions) {
    this.#substrate = substrate;
    this.#options = options;
  }

  /** An agent of this spec is about to need, or just used, a spare. */
  touch(spec: MachineSpec): void {
    if (spec.base.kind !== "template" || this.#options.sparesPerSpec === 0) return;
    const { tenant, shape, base, boot } = spec;
    const key = digestOf({
      tenant,
      shape,
      base: base.digest,
      kernel: boot.kernelDigest,
      initramfs: boot.initramfsDigest,
    });
    this.#specs.delete(key);
    this.#specs.set(key, spec);
    this.#substrate.keepSpares(spec, this.#options.sparesPerSpec);
    for (const [oldKey, old] of this.#specs) {
      if (this.#specs.size <= this.#options.specsMax) return;
      this.#specs.delete(oldKey);
      this.#substrate.keepSpares(old, 0);
    }
  }

  /** No spare is kept of these bases any more: their files are free when the processes have ended. */
  forget(bases: ReadonlySet<Digest>): void {
    for (const [key, spec] of this.#specs) {
      if (spec.base.kind === "zero" || !bases.has(spec.base.digest)) continue;
      this.#specs.delete(key);
      this.#substrate.keepSpares(spec, 0);
    }
  }
}
