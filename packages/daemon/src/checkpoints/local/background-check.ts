/** Full checks of large files that are due since the host booted: one at a time, out of the way. */
import type { Damage } from "../damage.ts";

/** A file that a background check found damaged. */
export interface DamageReport {
  /** Agent id, or template key. */
  readonly owner: string;
  readonly path: string;
  readonly damage: Damage;
}

/** Decides when a check runs. The check itself reports what it finds and never rejects. */
export type VerifyInBackground = (check: () => Promise<void>) => void;

/** A wake is at its busiest just after `open`; checks begin after it. */
const delayMs = 2000;

export class BackgroundChecks {
  readonly #schedule: VerifyInBackground;
  readonly #onDamage: (report: DamageReport) => void;
  readonly #pending = new Set<string>();
  #queue: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(
    schedule: VerifyInBackground | undefined,
    onDamage: ((report: DamageReport) => void) | undefined,
  ) {
    this.#schedule = schedule ?? ((check) => this.#later(check));
    this.#onDamage = onDamage ?? (() => undefined);
  }

  /** Runs `verify` some time, unless the same file is waiting already. */
  add(owner: string, path: string, verify: () => Promise<void>): void {
    if (this.#pending.has(path)) return;
    this.#pending.add(path);
    this.#schedule(async () => {
      try {
        if (!this.#closed) await verify();
      } catch (error) {
        // The file may have been removed meanwhile, or the store closed; damage is remembered by its record.
        if ((error as Error).name === "Damage") {
          this.#onDamage({ owner, path, damage: error as Damage });
        }
      } finally {
        this.#pending.delete(path);
      }
    });
  }

  close(): void {
    this.#closed = true;
  }

  #later(check: () => Promise<void>): void {
    setTimeout(() => {
      this.#queue = this.#queue.then(check);
    }, delayMs).unref();
  }
}
