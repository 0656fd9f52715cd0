/**
 * What the tests of a substrate share: a template to wake, and machines that end with the test
 * they were made for.
 */
import type { Digest } from "@perdure/protocol";
import type { TestContext } from "vitest";
import type {
  ClockAdvance,
  DiskChain,
  Machine,
  MachineSpec,
  Substrate,
} from "../../../packages/daemon/src/core/ports/substrate.ts";
import { batchesOf, pagesOf, type Cut } from "./cut-bytes.ts";
import type { SubstrateCapability, SubstrateSubject, TestGuest } from "./subject.ts";

export const HELD_BYTES = 4 * 1024 * 1024;
export const DISK_BYTES = 64 * 1024;

/** A machine with its guest and its disk. */
interface Woken {
  readonly machine: Machine;
  readonly guest: TestGuest;
  readonly chain: DiskChain;
}

export class SubstrateRig {
  subject!: SubstrateSubject;
  substrate!: Substrate;
  spec!: MachineSpec;
  template!: Cut;
  /** Checksums of the template's memory and disk. */
  held!: string;
  onDisk!: string;
  readonly machines: Machine[] = [];
  readonly #guests: TestGuest[] = [];

  async open(make: () => Promise<SubstrateSubject>): Promise<void> {
    this.subject = await make();
    this.substrate = await this.subject.open();
    const path = await this.subject.newBasePath();
    const layer = await this.subject.newLayer();
    const chain = { imagePath: null, layerPaths: [layer] };
    const machine = this.mine(await this.substrate.bootTemplate(this.subject.spec, chain, path));
    const guest = this.guestOf(machine);
    await machine.run();
    await guest.ready();
    this.held = await guest.hold(HELD_BYTES, 1);
    this.onDisk = await guest.writeDisk(0, DISK_BYTES, 2);
    await machine.pause();
    const devices = await machine.saveDevices();
    await machine.kill();
    const none = { indexes: new Uint32Array(0), bytes: new Uint8Array(0) };
    this.template = { ...none, devices, layers: [layer] };
    const base = { kind: "template", digest: "0".repeat(64) as Digest, path } as const;
    this.spec = { ...this.subject.spec, base };
  }

  async endMachines(): Promise<void> {
    for (const guest of this.#guests.splice(0)) guest.close();
    for (const machine of this.machines.splice(0)) await machine.kill();
  }

  async close(): Promise<void> {
    await this.substrate.close();
    await this.subject.close();
  }

  needs(context: TestContext, capability: SubstrateCapability): void {
    const why = this.subject.missing[capability];
    context.skip(why !== undefined, why);
  }

  /** Ended after the test, whatever happens. */
  mine(machine: Machine): Machine {
    this.machines.push(machine);
    return machine;
  }

  guestOf(machine: Machine): TestGuest {
    const guest = this.subject.guest(machine);
    this.#guests.push(guest);
    return guest;
  }

  /** A spare with the cut in it and a new layer on top, paused. */
  async load(cut: Cut, prepared = false, advance?: ClockAdvance): Promise<Woken> {
    const machine = this.mine(await this.substrate.takeSpare(this.spec));
    const guest = this.guestOf(machine);
    const layerPaths = [...cut.layers, await this.subject.newLayer()];
    const chain = { imagePath: null, layerPaths };
    if (prepared) await machine.prepareWake(chain);
    await Promise.all([machine.attachDisk(chain), machine.injectMemory(batchesOf(cut))]);
    await machine.loadDevices(cut.devices, advance);
    return { machine, guest, chain };
  }

  async wake(cut: Cut, prepared = false, advance?: ClockAdvance): Promise<Woken> {
    const woken = await this.load(cut, prepared, advance);
    await woken.machine.run();
    await woken.guest.ready();
    return woken;
  }

  /** Pauses and captures; what was the top is immutable then, as of any checkpoint. */
  async cutOf(machine: Machine, chain: DiskChain): Promise<Cut> {
    await machine.pause();
    const indexes = await machine.privatePages();
    const bytes = await pagesOf(machine, indexes);
    const devices = await machine.saveDevices();
    await machine.addLayer(await this.subject.newLayer());
    return { indexes, bytes, devices, layers: chain.layerPaths };
  }
}
