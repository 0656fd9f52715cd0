/**
 * Worker threads of the checkpoint and template stores: everything that hashes, compares, compresses
 * or encrypts runs there, so that the main loop only hands buffers around.
 */
import { availableParallelism } from "node:os";
import { Piscina } from "piscina";
import { PageBuffers } from "../../core/page-buffers.ts";
import { Damage } from "../damage.ts";
import { blockCount, contentDigest } from "../content-digest.ts";
import type { Digest } from "@perdure/protocol";
import type { Jobs, Outcome } from "./jobs.ts";

const threadsMin = 2;
const threadsMax = 4;
/** Blocks hashed by one job: a wake that comes in between waits for this much only. */
const digestBlocksPerJob = 8;

export class WorkPool {
  readonly threads: number;
  /** For pages on their way to and from the threads. */
  readonly buffers: PageBuffers;
  readonly #piscina: Piscina;

  constructor(buffers = new PageBuffers()) {
    this.buffers = buffers;
    this.threads = Math.min(Math.max(availableParallelism(), threadsMin), threadsMax);
    this.#piscina = new Piscina({
      filename: new URL("./worker.ts", import.meta.url).href,
      minThreads: this.threads,
      maxThreads: this.threads,
      execArgv: [],
    });
  }

  /** @throws Damage, or an error with the system's code */
  async run<N extends keyof Jobs>(
    name: N,
    input: Parameters<Jobs[N]>[0],
    transfer: readonly ArrayBuffer[] = [],
  ): Promise<ReturnType<Jobs[N]>> {
    const outcome = (await this.#piscina.run(input, { name, transferList: transfer })) as Outcome<
      ReturnType<Jobs[N]>
    >;
    if (outcome.ok) return outcome.value;
    const { failure } = outcome;
    if (failure.kind === "damage") throw new Damage(failure.part, failure.check, failure.message);
    throw Object.assign(new Error(failure.message), { code: failure.code });
  }

  /** The content digest of a file whose length is known; by one thread at a time in the background. */
  async digestFile(
    part: "base" | "layer",
    path: string,
    bytes: number,
    inBackground = false,
  ): Promise<Digest> {
    const blocks = blockCount(bytes);
    const pieces = new Array<Uint8Array>(Math.ceil(blocks / digestBlocksPerJob));
    let next = 0;
    const share = async (): Promise<void> => {
      for (let piece = next++; piece < pieces.length; piece = next++) {
        const fromBlock = piece * digestBlocksPerJob;
        const toBlock = Math.min(fromBlock + digestBlocksPerJob, blocks);
        pieces[piece] = await this.run("digestBlocks", { part, path, bytes, fromBlock, toBlock });
      }
    };
    const jobsAtOnce = inBackground ? 1 : this.threads + 1;
    await Promise.all(Array.from({ length: jobsAtOnce }, share));
    return contentDigest(bytes, pieces);
  }

  async close(): Promise<void> {
    await this.#piscina.destroy();
  }
}
