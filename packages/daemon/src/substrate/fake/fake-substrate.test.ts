/** The fake keeps the contract that the real substrate keeps. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { MIB, type Digest } from "@perdure/protocol";
import { substrateContract } from "../../../../../test/contract/substrate.ts";
import type {
  SubstrateSubject,
  TestGuest,
} from "../../../../../test/contract/substrate/subject.ts";
import type { Machine } from "../../core/ports/substrate.ts";
import { ContractGuest } from "./contract-guest.ts";
import { RealFiles } from "./fake-file.ts";
import { FakeHost } from "./fake-host.ts";
import { FakeSubstrate } from "./fake-substrate.ts";
import { Faults } from "./fault.ts";

substrateContract("fake", async (): Promise<SubstrateSubject> => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-fake-"));
  const realFiles = new RealFiles();
  const host = new FakeHost(realFiles, (seat, saved) => new ContractGuest(seat, saved));
  const faults = new Faults();
  let files = 0;
  const digest = "1".repeat(64) as Digest;
  return {
    spec: {
      tenant: "default",
      shape: { memoryBytes: 64 * MIB, cpus: 1, diskBytes: 64 * MIB },
      boot: {
        kernelPath: "",
        kernelDigest: digest,
        initramfsPath: "",
        initramfsDigest: digest,
        commandLine: "",
        guestProtocol: 1,
      },
    },
    open: () => Promise.resolve(new FakeSubstrate({ host, faults })),
    guest: (machine) => testGuest(host, machine),
    newBasePath: () => Promise.resolve(join(folder, `base-${++files}`)),
    newLayer: () => {
      const path = join(folder, `layer-${++files}`);
      realFiles.write(path, Buffer.from("{}"));
      return Promise.resolve(path);
    },
    crash: ({ pid }) => host.byPid(pid)?.happen("exited", "killed by the test"),
    missing: {},
    close: () => rm(folder, { recursive: true }),
  };
});

function testGuest(host: FakeHost, machine: Machine): TestGuest {
  const inside = async (): Promise<ContractGuest> => {
    const guest = await host.byLink(machine.linkPath)?.loaded;
    if (!(guest instanceof ContractGuest)) throw new Error("The machine is gone");
    await guest.runs();
    return guest;
  };
  return {
    ready: async () => {
      await inside();
    },
    hold: async (bytes, seed) => (await inside()).hold(bytes, seed),
    held: async () => (await inside()).held(),
    writeDisk: async (offset, bytes, seed) => (await inside()).writeDisk(offset, bytes, seed),
    readDisk: async (offset, bytes) => (await inside()).readDisk(offset, bytes),
    clocks: async () => {
      const { monotonicMs } = await inside();
      return { monotonicMs, bootMs: monotonicMs };
    },
    ticks: async () => (await inside()).ticks,
    end: (how) => void inside().then(({ seat }) => seat.happen(how)),
    close: () => undefined,
  };
}
