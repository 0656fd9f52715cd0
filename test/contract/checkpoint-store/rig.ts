/** What the tests of a checkpoint store share: an empty store with one agent, new for each test. */
import type { AgentId } from "@perdure/protocol";
import type {
  CapturedState,
  CheckpointStore,
} from "../../../packages/daemon/src/core/ports/checkpoint-store.ts";
import type { MemoryBase } from "../../../packages/daemon/src/core/ports/substrate.ts";
import {
  capture,
  newAgentId,
  samplePage,
  seeded,
  wholeMemory,
} from "../checkpoint-store-sample.ts";
import type { OpenCheckpointStore } from "./subject.ts";

export const devices = new Uint8Array(Buffer.from("state of cpu and devices ".repeat(3000)));
export const quiet = (): void => undefined;
export const zero: MemoryBase = { kind: "zero" };

export class CheckpointStoreRig {
  opened!: OpenCheckpointStore;
  store!: CheckpointStore;
  agent!: AgentId;
  readonly draw = seeded(7);

  async open(open: () => Promise<OpenCheckpointStore>): Promise<void> {
    this.opened = await open();
    this.store = this.opened.store;
    this.agent = newAgentId();
    await this.store.createAgent(this.agent, "default");
  }

  async dispose(): Promise<void> {
    await this.opened.dispose();
  }

  state(
    pages: ReadonlyMap<number, Uint8Array>,
    base: MemoryBase = zero,
    ownBase = false,
  ): CapturedState {
    return { base, pages: capture(pages), devices, ownBase };
  }

  somePages(count: number, from = 0): Map<number, Uint8Array> {
    return new Map(Array.from({ length: count }, (_, i) => [from + 3 * i, samplePage(this.draw)]));
  }

  async memoryOf(checkpoint: Parameters<CheckpointStore["open"]>[1]): Promise<Buffer> {
    return await wholeMemory(await this.store.open(this.agent, checkpoint));
  }
}
