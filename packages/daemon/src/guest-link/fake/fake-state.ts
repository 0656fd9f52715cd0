/** What a fake guest is made of, and what its operations may touch. */
import type { Duplex } from "node:stream";
import type { Clock } from "../../core/ports/clock.ts";
import type { FakeFile, FakeFiles } from "./fake-file.ts";
import type { FakeWayOut } from "./fake-way-out.ts";
import type { FakeProcess, FakeProcessState } from "./fake-process.ts";

/** Plain data: all that survives a sleep. */
export interface FakeGuestState {
  bootId: string;
  hostname: string;
  machineId: string;
  generation: number;
  /** What the generation event said. */
  generationJson: string;
  frozen: boolean;
  /** What its kernel keeps time by. */
  clockSource: string;
  /** The guest's wall clock minus the host's. */
  skewMs: number;
  /** Times that entropy was added. */
  entropyAdded: number;
  /** Page cache, all of it on the disk. */
  cachedBytes: number;
  nextProcess: number;
  /** Files written and paths changed over the link. */
  fileWrites: number;
  readonly files: Record<string, FakeFile>;
  processes: FakeProcessState[];
}

/** What listens on a port inside: gets its end of each connection, which is broken off by `destroy`. */
export type FakeListener = (peer: Duplex) => void;

/** The guest as its operations see it. */
export interface FakeInside {
  readonly state: FakeGuestState;
  readonly clock: Clock;
  readonly files: FakeFiles;
  readonly processes: ReadonlyMap<number, FakeProcess>;
  /** By port. No part of its memory. */
  readonly listeners: ReadonlyMap<number, FakeListener>;
  /** No part of its memory either. */
  readonly wayOut: FakeWayOut;
  /** The guest's wall clock. */
  nowMs(): number;
  /** Lets every process look again whether it may run. */
  poke(): void;
  /** Starts a process of this state, which becomes part of the guest's. */
  add(state: FakeProcessState): FakeProcess;
  forget(process: FakeProcess): void;
  powerOff(): void;
}
