/** Which operations the simulation makes fail, or never answer. */
import type { Random } from "./random.ts";

const failing = [
  "substrate.isAlive",
  "substrate.end",
  "substrate.takeSpare",
  "substrate.bootCold",
  "substrate.facts",
  "machine.prepareWake",
  "machine.attachDisk",
  "machine.injectMemory",
  "machine.loadDevices",
  "machine.run",
  "machine.pause",
  "machine.changedPages",
  "machine.prepareCut",
  "machine.privatePages",
  "machine.saveDevices",
  "machine.readPages",
  "machine.readBatch",
  "machine.addLayer",
  "machine.mergeLayers",
  "links.connect",
  "link.sync",
  "link.info",
  "link.setClock",
  "link.addEntropy",
  "link.setIdentity",
  "link.setGeneration",
  "link.exec",
  "checkpoints.createAgent",
  "checkpoints.linkLayer",
  "checkpoints.createLayer",
  "checkpoints.syncLayer",
  "checkpoints.open",
  "checkpoints.reserve",
  "checkpoints.write",
  "checkpoints.pack-written",
  "checkpoints.page-map-written",
  "checkpoints.devices-written",
  "checkpoints.layers-synced",
  "checkpoints.manifest-written",
  "checkpoints.openExport",
  "checkpoints.openImport",
  "checkpoints.receive",
  "checkpoints.collect",
  "checkpoints.storedBytes",
  "checkpoints.removeAgent",
  "checkpoints.removeLayer",
  "templates.open",
  "state.commit",
] as const;

/** Operations with a deadline: the simulation never waits for ever. */
const hanging = [
  "link.sync",
  "link.info",
  "link.setClock",
  "link.flush",
  "link.freeze",
  "link.exec",
];

export interface DrawnFault {
  readonly point: string;
  readonly mode: "fail" | "hang";
  readonly skip: number;
}

export function drawFault(random: Random): DrawnFault {
  const mode = random.chance(0.2) ? "hang" : "fail";
  const point = random.pick<string>(mode === "hang" ? hanging : failing);
  return { point, mode, skip: random.chance(0.6) ? 0 : random.below(3) };
}
