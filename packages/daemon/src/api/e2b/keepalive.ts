/** A sign of life into a stream in which nothing is said for a while, so that nobody in between takes it for dead. */
import type { Clock } from "../../core/ports/clock.ts";

const DEFAULT_S = 90;
const MAX_S = 3_600;

/** What a client asked for in its header, milliseconds. */
export function keepaliveMs(header: string | null): number {
  const asked = Number(header ?? "");
  return 1000 * (Number.isInteger(asked) && asked > 0 ? Math.min(asked, MAX_S) : DEFAULT_S);
}

/** `values`, and null after each `everyMs` in which there was none. */
export async function* withKeepalive<T>(
  values: AsyncIterable<T>,
  everyMs: number,
  clock: Pick<Clock, "wait">,
): AsyncGenerator<T | null> {
  const from = values[Symbol.asyncIterator]();
  let next: Promise<IteratorResult<T>> | null = null;
  try {
    for (;;) {
      next ??= from.next();
      const stop = new AbortController();
      const silence = clock.wait(everyMs, stop.signal).then(
        () => null,
        () => null,
      );
      const first = await Promise.race([next, silence]).finally(() => {
        stop.abort();
      });
      if (first === null) {
        yield null;
        continue;
      }
      next = null;
      if (first.done === true) return;
      yield first.value;
    }
  } finally {
    // What nobody waits for any more may still fail.
    next?.catch(() => undefined);
    void from.return?.();
  }
}
