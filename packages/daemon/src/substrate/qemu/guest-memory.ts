/**
 * A guest's memory, seen from the host: which pages differ from the base, and their contents. The work
 * happens in worker threads that all machines of a daemon share.
 *
 * - I1 What a batch holds belongs to its receiver.
 * - I2 At most `batchesAtOnce` batches are under way, however slow the consumer.
 */
import { PAGE_BYTES, PerdureError } from "@perdure/protocol";
import { Piscina } from "piscina";
import type { PageBuffers } from "../../core/page-buffers.ts";
import { PAGE_BATCH_BYTES_MAX, type PageBatch } from "../../core/ports/page.ts";
import { qemuLimits } from "./limit.ts";
import type { MemoryTask } from "./memory-worker.ts";
import { processError } from "./process.ts";

function startThreads(): Piscina {
  return new Piscina({
    filename: new URL("./memory-worker.ts", import.meta.url).href,
    minThreads: qemuLimits.memoryThreads,
    maxThreads: qemuLimits.memoryThreads,
  });
}

/** Threads that touch VM memory. They are started at once: the first sleep should not wait for them. */
export class MemoryWorkers {
  /** Told of each injection: bytes, and the time from its first batch to its end. */
  onInjected: (bytes: number, ms: number) => void = () => undefined;
  readonly #buffers: PageBuffers;
  #threads: Piscina | null = startThreads();

  constructor(buffers: PageBuffers) {
    this.#buffers = buffers;
  }

  /** Makes reading this many pages quick: their buffers are made and touched now. */
  async prepare(pages: number): Promise<void> {
    await this.#buffers.prepare(
      Math.ceil(pages / PAGES_PER_BATCH),
      async () => (await this.#run("makeBuffer", {}, [])) as ArrayBuffer,
    );
  }

  /** Gives back what was prepared and not used. */
  trim(): void {
    this.#buffers.trim();
  }

  async scan(task: MemoryTask): Promise<Uint32Array<ArrayBuffer>> {
    return (await this.#run("scan", task, [])) as Uint32Array<ArrayBuffer>;
  }

  async read(
    task: MemoryTask,
    indexes: Uint32Array<ArrayBuffer>,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const into = this.#buffers.take();
    const input = { ...task, indexes, into };
    return (await this.#run("read", input, [into])) as Uint8Array<ArrayBuffer>;
  }

  async write(task: MemoryTask, batch: PageBatch): Promise<void> {
    const buffers = [batch.indexes.buffer, batch.bytes.buffer];
    const input = { ...task, ...batch };
    this.#buffers.give((await this.#run("write", input, buffers)) as ArrayBuffer);
  }

  /** Ends the threads. Machines that are still in use bring them back. */
  async close(): Promise<void> {
    const threads = this.#threads;
    this.#threads = null;
    await threads?.close();
  }

  async #run(
    name: string,
    input: Partial<MemoryTask>,
    transferList: ArrayBuffer[],
  ): Promise<unknown> {
    try {
      this.#threads ??= startThreads();
      return (await this.#threads.run(input, { name, transferList })) as unknown;
    } catch (error) {
      if (input.process === undefined) throw PerdureError.from(error, "machine_failed");
      throw await processError(input.process, `${name} the memory of the VM process`, error);
    }
  }
}

export const PAGES_PER_BATCH = PAGE_BATCH_BYTES_MAX / PAGE_BYTES;

export async function* readPages(
  workers: MemoryWorkers,
  task: MemoryTask,
  indexes: Uint32Array<ArrayBuffer>,
): AsyncGenerator<PageBatch> {
  const ahead: Promise<PageBatch>[] = [];
  let next = 0;
  const start = (): void => {
    while (ahead.length < qemuLimits.batchesAtOnce && next < indexes.length) {
      const part = indexes.slice(next, next + PAGES_PER_BATCH);
      next += part.length;
      const batch = workers.read(task, part).then((bytes) => ({ indexes: part, bytes }));
      // It is awaited below, unless the consumer leaves earlier.
      batch.catch(() => undefined);
      ahead.push(batch);
    }
  };
  start();
  for (let batch = ahead.shift(); batch !== undefined; batch = ahead.shift()) {
    const done = await batch;
    start();
    yield done;
  }
}

/** Writes every batch; the first failure ends it. */
export async function writePages(
  workers: MemoryWorkers,
  task: MemoryTask,
  batches: AsyncIterable<PageBatch>,
): Promise<void> {
  const underWay: Promise<void>[] = [];
  const startMs = performance.now();
  let bytes = 0;
  try {
    for await (const batch of batches) {
      bytes += batch.bytes.length;
      const write = workers.write(task, batch);
      write.catch(() => undefined);
      underWay.push(write);
      if (underWay.length >= qemuLimits.batchesAtOnce) await underWay.shift();
    }
  } finally {
    // Nobody may write into the process after this returns.
    await Promise.allSettled(underWay);
  }
  await Promise.all(underWay);
  workers.onInjected(bytes, performance.now() - startMs);
}
