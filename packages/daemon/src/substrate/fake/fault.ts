/**
 * Faults: what a test makes go wrong. Every operation of a fake passes through `point` by name, such as
 * `machine.pause` or `link.freeze`; a fault set there fails it, or makes it never answer.
 */
import { PerdureError, type ErrorCode } from "@perdure/protocol";

export type Fault =
  | { readonly kind: "fail"; readonly error: PerdureError }
  /** No answer, until `Faults.release` or the death of what was asked. */
  | { readonly kind: "hang" }
  /** Something else that happens first; the operation then goes on. */
  | { readonly kind: "do"; readonly work: () => Promise<void> | void };

interface Armed {
  readonly fault: Fault;
  skip: number;
  left: number;
}

export class Faults {
  readonly #armed = new Map<string, Armed[]>();
  #hanging: (() => void)[] = [];
  /** Called at each point, for tests that draw faults or count operations. */
  onPoint: ((name: string) => Fault | null) | null = null;

  /** Arms `fault` for the next `times` passes of `name`, after `skip` that go well. */
  arm(name: string, fault: Fault, { times = 1, skip = 0 } = {}): void {
    const list = this.#armed.get(name) ?? [];
    list.push({ fault, skip, left: times });
    this.#armed.set(name, list);
  }

  /** Fails the next pass of `name`. */
  fail(name: string, code: ErrorCode = "machine_failed", options?: { times?: number }): void {
    const error = new PerdureError(code, `Fault injected at "${name}"`);
    this.arm(name, { kind: "fail", error }, options);
  }

  hang(name: string, options?: { times?: number; skip?: number }): void {
    this.arm(name, { kind: "hang" }, options);
  }

  /** Disarms everything; what hangs goes on. */
  clear(): void {
    this.#armed.clear();
    this.onPoint = null;
    this.release();
  }

  release(): void {
    const hanging = this.#hanging;
    this.#hanging = [];
    for (const goOn of hanging) goOn();
  }

  /** The fault that is due at `name`, taken out of what is armed. */
  take(name: string): Fault | null {
    const drawn = this.onPoint?.(name) ?? null;
    if (drawn !== null) return drawn;
    for (const armed of this.#armed.get(name) ?? []) {
      if (armed.left === 0) continue;
      if (armed.skip > 0) {
        armed.skip--;
        continue;
      }
      armed.left--;
      return armed.fault;
    }
    return null;
  }

  async point(name: string): Promise<void> {
    const fault = this.take(name);
    switch (fault?.kind) {
      case undefined:
        return;
      case "fail":
        throw fault.error;
      case "hang":
        await new Promise<void>((goOn) => this.#hanging.push(goOn));
        return;
      case "do":
        await fault.work();
    }
  }
}
