/**
 * Capture, wake and fork of a bare machine, over the substrate's own machine code: the proof of that
 * code under real KVM on hosts whose KVM cannot run a kernel.
 */
import { writeFile } from "node:fs/promises";
import { PAGE_BYTES, type Digest, type SubstrateFacts } from "@perdure/protocol";
import { expect } from "vitest";
import type { PageBatch } from "../../packages/daemon/src/core/ports/page.ts";
import {
  CPU_MODEL,
  deviceDigest,
  MACHINE_TYPE,
  type Accelerator,
} from "../../packages/daemon/src/substrate/qemu/command-line.ts";
import { qemuLimits } from "../../packages/daemon/src/substrate/qemu/limit.ts";
import { startMachine } from "../../packages/daemon/src/substrate/qemu/machine-start.ts";
import type { QemuMachine } from "../../packages/daemon/src/substrate/qemu/machine.ts";
import type { StartTools } from "../../packages/daemon/src/substrate/qemu/machine-start.ts";
import { buildPayload, payload } from "./payload.ts";

const diskBytes = 2 * 1024 ** 3;

/** A cut: every page that differs from zero memory, and the devices. */
export interface Cut {
  readonly pages: ReadonlyMap<number, Uint8Array<ArrayBuffer>>;
  readonly devices: Uint8Array;
}

export class BareMachines {
  readonly #tools: StartTools;
  readonly #facts: SubstrateFacts;
  readonly #firmwarePath: string;
  readonly #machines: QemuMachine[] = [];

  private constructor(
    tools: StartTools,
    accelerator: Accelerator,
    firmwarePath: string,
    memoryBytes: number,
  ) {
    const none = "0".repeat(64) as Digest;
    const shape = { memoryBytes, cpus: 1, diskBytes };
    this.#tools = tools;
    this.#firmwarePath = firmwarePath;
    this.#facts = {
      vmm: "qemu",
      vmmVersion: tools.qemu.version,
      machineType: MACHINE_TYPE,
      deviceDigest: deviceDigest(shape),
      shape,
      cpuModel: CPU_MODEL,
      accelerator,
      tscKhz: 0,
      kernel: none,
      initramfs: none,
      guestProtocol: 1,
    };
  }

  static async make(
    tools: StartTools,
    accelerator: Accelerator,
    firmwarePath: string,
    memoryBytes = 128 * 1024 * 1024,
  ): Promise<BareMachines> {
    await writeFile(firmwarePath, buildPayload());
    return new BareMachines(tools, accelerator, firmwarePath, memoryBytes);
  }

  async boot(): Promise<QemuMachine> {
    return this.#start(false);
  }

  /** A fresh spare with the cut in it, paused. */
  async wake(cut: Cut): Promise<QemuMachine> {
    const machine = await this.#start(true);
    await machine.injectMemory(batchOf(cut));
    await machine.loadDevices(cut.devices);
    return machine;
  }

  async close(): Promise<void> {
    for (const machine of this.#machines) await machine.kill();
  }

  async #start(incoming: boolean): Promise<QemuMachine> {
    const machine = await startMachine(this.#tools, {
      tenant: "default",
      facts: this.#facts,
      boot: { kind: "firmware", path: this.#firmwarePath },
      memory: { kind: "zero" },
      incoming,
      started: new Set(),
    });
    this.#machines.push(machine);
    return machine;
  }
}

async function* batchOf(cut: Cut): AsyncGenerator<PageBatch> {
  const indexes = Uint32Array.from(cut.pages.keys());
  const bytes = new Uint8Array(indexes.length * PAGE_BYTES);
  [...cut.pages.values()].forEach((page, at) => bytes.set(page, at * PAGE_BYTES));
  yield await Promise.resolve({ indexes, bytes });
}

/** Pauses the machine and takes a cut of it. */
export async function cutOf(machine: QemuMachine): Promise<Cut> {
  await machine.pause();
  const pages = await memoryOf(machine);
  return { pages, devices: await machine.saveDevices() };
}

export async function memoryOf(
  machine: QemuMachine,
): Promise<ReadonlyMap<number, Uint8Array<ArrayBuffer>>> {
  const pages = new Map<number, Uint8Array<ArrayBuffer>>();
  for await (const batch of machine.readPages(await machine.privatePages())) {
    batch.indexes.forEach((index, at) => {
      pages.set(index, batch.bytes.slice(at * PAGE_BYTES, (at + 1) * PAGE_BYTES));
    });
  }
  return pages;
}

/** The count in a cut; checks that every page that the program writes agrees with it. */
export function countOf(cut: Pick<Cut, "pages">): number {
  const wordAt = (address: number): number => {
    const page = cut.pages.get(Math.floor(address / PAGE_BYTES));
    if (page === undefined) return 0;
    return new DataView(page.buffer, page.byteOffset).getUint32(address % PAGE_BYTES, true);
  };
  const count = wordAt(payload.counterAddress);
  for (let page = 0; page < payload.pages; page++) {
    const newest = count - ((count - page + payload.pages) % payload.pages);
    const found = wordAt(payload.pagesAddress + page * PAGE_BYTES);
    // Between counting and writing the newest page still holds its count of a round ago.
    const allowed = newest === count ? [newest, newest - payload.pages] : [newest];
    expect(allowed, `page ${page} at count ${count}`).toContain(found);
  }
  return count;
}

/** What a machine and its successors printed. */
export class Prints {
  #text = "";

  /** Appends what one machine printed; where its start was lost, what came before is forgotten. */
  add(tail: string): void {
    const whole = tail.length < qemuLimits.consoleTailBytes - 16;
    this.#text = whole ? this.#text + tail : tail.slice(tail.indexOf("\n") + 1);
  }

  /** In order; the last may be cut off and is left out. */
  get numbers(): number[] {
    const lines = this.#text.split("\n").slice(0, -1);
    return lines.map((line) => Number.parseInt(line, 16));
  }
}

/** Runs the machine until it has printed a line more, then leaves it paused. */
export async function runToNextLine(machine: QemuMachine): Promise<void> {
  const before = await machine.consoleTail();
  await machine.run();
  const end = performance.now() + 30_000;
  const grew = async (): Promise<boolean> => {
    const tail = await machine.consoleTail();
    return tail !== before && tail.includes("\n", before.length < 4000 ? before.length : 0);
  };
  while (!(await grew()) && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await machine.pause();
}

/** Runs the machine for a while, then leaves it paused. */
export async function runFor(machine: QemuMachine, ms: number): Promise<void> {
  await machine.run();
  await new Promise((resolve) => setTimeout(resolve, ms));
  await machine.pause();
}
