/**
 * Spares: VM processes started in advance, by spec. Starting one takes about 50 ms, taking one none.
 *
 * - I1 A spare is handed out once.
 * - I2 A spare that died in the pool is dropped and replaced, and never handed out.
 * - I3 After `close` none is left and none is started.
 * - I4 A spec that cannot be started is tried again only when asked again: no loop of failing starts.
 */
import type { Machine } from "../../core/ports/substrate.ts";

export interface SparePoolOptions<Spec, Spare extends Machine> {
  start(spec: Spec): Promise<Spare>;
  /** A start in the background failed, and the next `take` will meet the error itself; or an end did. */
  failed(error: unknown): void;
}

interface Shelf<Spec, Spare extends Machine> {
  spec: Spec;
  wanted: number;
  readonly ready: Spare[];
  starting: Promise<void> | null;
}

export class SparePool<Spec, Spare extends Machine> {
  readonly #options: SparePoolOptions<Spec, Spare>;
  readonly #shelves = new Map<string, Shelf<Spec, Spare>>();
  #closed = false;

  constructor(options: SparePoolOptions<Spec, Spare>) {
    this.#options = options;
  }

  keep(key: string, spec: Spec, count: number): void {
    if (this.#closed) return;
    const shelf = this.#shelves.get(key) ?? { spec, wanted: 0, ready: [], starting: null };
    this.#shelves.set(key, shelf);
    shelf.spec = spec;
    shelf.wanted = count;
    for (const surplus of shelf.ready.splice(count)) this.#end(surplus);
    this.#fill(key, shelf);
  }

  /**
   * From the shelf, or null. Its place is filled at the next `keep`: whoever takes a spare is in the
   * middle of a wake, and a process that starts beside it would slow that down.
   */
  take(key: string): Spare | null {
    return this.#shelves.get(key)?.ready.shift() ?? null;
  }

  /** Spares that are ready now. */
  count(key: string): number {
    return this.#shelves.get(key)?.ready.length ?? 0;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const shelves = [...this.#shelves.values()];
    this.#shelves.clear();
    for (const shelf of shelves) await shelf.starting;
    await Promise.all(shelves.flatMap(({ ready }) => ready.map((machine) => machine.kill())));
  }

  #end(spare: Spare): void {
    spare.kill().catch((error: unknown) => this.#options.failed(error));
  }

  #fill(key: string, shelf: Shelf<Spec, Spare>): void {
    shelf.starting ??= this.#start(key, shelf).finally(() => {
      shelf.starting = null;
      if (shelf.wanted === 0 && shelf.ready.length === 0) this.#shelves.delete(key);
    });
  }

  /** One at a time: a host that starts several is slower with each. */
  async #start(key: string, shelf: Shelf<Spec, Spare>): Promise<void> {
    while (!this.#closed && shelf.ready.length < shelf.wanted) {
      let machine: Spare;
      try {
        machine = await this.#options.start(shelf.spec);
      } catch (error) {
        this.#options.failed(error);
        return;
      }
      shelf.ready.push(machine);
      machine.onEvent(() => {
        const at = shelf.ready.indexOf(machine);
        if (at < 0) return;
        shelf.ready.splice(at, 1);
        this.#end(machine);
        this.#fill(key, shelf);
      });
    }
  }
}
