/**
 * Boots a kernel under KVM until its first program runs, to see whether this host can. The machine is
 * ended either way.
 */
import { connect } from "node:net";
import type { BootFiles } from "../../core/ports/substrate.ts";
import { qemuLimits } from "./limit.ts";
import type { QemuMachine } from "./machine.ts";

export interface ProbeResult {
  readonly booted: boolean;
  readonly detail: string;
}

/** The command line of a probe: the kernel says when it starts the first program. */
export function probeBoot(boot: BootFiles): BootFiles {
  return { ...boot, commandLine: `${boot.commandLine} ignore_loglevel` };
}

/** @param start starts the machine, paused */
export async function probe(
  start: () => Promise<QemuMachine>,
  clock: { monotonicMs(): number; wait(ms: number): Promise<void> },
): Promise<ProbeResult> {
  let machine: QemuMachine;
  try {
    machine = await start();
  } catch (error) {
    return { booted: false, detail: (error as Error).message };
  }
  // Something must read the link, or a guest that writes to it would wait.
  const link = connect(machine.linkPath);
  link.on("error", () => undefined);
  link.resume();
  const began = clock.monotonicMs();
  try {
    let ended = "";
    machine.onEvent(({ kind, detail }) => (ended ||= `${kind} ${detail.slice(-200)}`.trim()));
    await machine.run();
    let tail = "";
    const limitMs = (): number => (tail === "" ? qemuLimits.probeSilenceMs : qemuLimits.probeMs);
    while (clock.monotonicMs() - began < limitMs() && ended === "") {
      tail = await machine.consoleTail();
      if (tail.includes("as init process")) {
        const tookMs = Math.round(clock.monotonicMs() - began);
        return { booted: true, detail: `its first program ran after ${tookMs} ms` };
      }
      await clock.wait(50);
    }
    const said = tail === "" ? "it printed nothing" : `it last printed "${tail.slice(-100)}"`;
    return { booted: false, detail: ended || `no sign of life in ${limitMs()} ms, ${said}` };
  } catch (error) {
    return { booted: false, detail: (error as Error).message };
  } finally {
    link.destroy();
    await machine.kill();
  }
}
