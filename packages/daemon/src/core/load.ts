/** From a VM process to one with an agent's disk, memory and devices in it, its CPUs still standing. */
import type { Actor } from "./actor.ts";
import { assertCompatible } from "./compatibility.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { PageBatch } from "./ports/page.ts";
import type { ClockAdvance, DiskChain, Machine, MachineSpec } from "./ports/substrate.ts";
import type { SubstrateFacts } from "@perdure/protocol";

/** Memory over the base, and devices. */
export interface SavedState {
  pages(): AsyncIterable<PageBatch>;
  readonly devices: Uint8Array;
}

/** @throws `checkpoint_incompatible` where this host cannot honour what the state was captured on */
export async function takeSpare(
  { parts, agent }: Actor,
  spec: MachineSpec,
  capturedOn: SubstrateFacts | null,
): Promise<Machine> {
  if (capturedOn !== null) {
    assertCompatible(agent.name, capturedOn, await parts.substrate.facts(spec));
  }
  return parts.substrate.takeSpare(spec);
}

/** Connects to the machine's port, and holds the link. */
export async function connect(actor: Actor, machine: Machine): Promise<GuestLink> {
  return actor.hold(await actor.parts.links.connect(machine.linkPath));
}

export interface Loading {
  /** How far the guest's clock is moved; asked as late as can be, because it begins to run a moment later. */
  readonly advance: () => ClockAdvance | null;
  readonly mark: (phase: string) => void;
}

/** @param memory what `injectMemory` returned; awaited with the disk */
export async function loadState(
  machine: Machine,
  state: SavedState,
  chain: DiskChain,
  memory: Promise<void>,
  { advance, mark }: Loading = { advance: () => null, mark: () => undefined },
): Promise<void> {
  await machine.attachDisk(chain);
  mark("disk");
  await memory;
  mark("memory");
  await machine.loadDevices(state.devices, advance() ?? undefined);
  mark("devices");
}
