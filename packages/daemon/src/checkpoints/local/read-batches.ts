/** Pages of a page map in ascending batches, read ahead by the worker threads within a bound. */
import type { PageBatch } from "../../core/ports/page.ts";
import { packKey } from "../pack.ts";
import type { PageMap } from "../page-map.ts";
import type { WorkPool } from "../work/pool.ts";

const batchPagesMin = 256;
const batchPagesMax = 1024;
/** Jobs per thread that are running, waiting, or done and not yet taken: at most 4 MiB each. */
const aheadPerThread = 3;

export async function* readBatches(
  pool: WorkPool,
  agentKey: Uint8Array,
  map: PageMap,
  packPath: (id: string) => string,
): AsyncGenerator<PageBatch, void, undefined> {
  const entries = map.index.length;
  const packs = map.packs.map(({ id, salt }) => ({
    path: packPath(id),
    key: packKey(agentKey, id, salt),
  }));
  const share = Math.ceil(entries / (pool.threads * 2));
  const batchPages = Math.min(Math.max(share, batchPagesMin), batchPagesMax);
  const ahead: Promise<PageBatch>[] = [];
  let next = 0;
  const request = (): void => {
    const to = Math.min(next + batchPages, entries);
    const into = pool.buffers.take();
    const batch = pool.run("readPages", { map, packs, from: next, to, into }, [into]);
    batch.catch(() => undefined); // Awaited in turn; one that fails early must not count as unhandled.
    ahead.push(batch);
    next = to;
  };
  try {
    for (;;) {
      while (next < entries && ahead.length < pool.threads * aheadPerThread) request();
      const batch = ahead.shift();
      if (batch === undefined) return;
      yield await batch;
    }
  } finally {
    await Promise.allSettled(ahead);
  }
}
