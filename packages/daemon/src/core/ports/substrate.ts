/**
 * Substrate: what runs VMs. `qemu` is the real one, `fake` the one of tests; both pass the contract
 * suite in test/contract/substrate.ts.
 *
 * A machine is one VM process of one generation. It is used once: nothing resets or rolls back
 * inside it. Every method's error is a `PerdureError`; where none is named it is `machine_failed`.
 */
import type { Digest, MachineId, MachineShape, SubstrateFacts } from "@perdure/protocol";
import type { PageBatch } from "./page.ts";

/** The file that memory is mapped from, privately. `zero`: an anonymous file of holes, made by the substrate. */
export type MemoryBase =
  | { readonly kind: "template" | "own"; readonly digest: Digest; readonly path: string }
  | { readonly kind: "zero" };

/** What boots: paths and digests of one image's kernel and initramfs. */
export interface BootFiles {
  readonly kernelPath: string;
  readonly kernelDigest: Digest;
  readonly initramfsPath: string;
  readonly initramfsDigest: Digest;
  readonly commandLine: string;
  readonly guestProtocol: number;
}

/** Everything that decides which VM process can carry which state: the key of the pool of spares. */
export interface MachineSpec {
  readonly tenant: string;
  readonly shape: MachineShape;
  readonly base: MemoryBase;
  readonly boot: BootFiles;
}

/**
 * A disk as files, lowest first. `image` is raw and immutable, null for a VM without a disk; `layers`
 * are qcow2 and immutable except the last, `top`, which this machine alone writes. Backing files
 * named inside the layers are ignored: this list is the chain.
 */
export interface DiskChain {
  readonly imagePath: string | null;
  readonly layerPaths: readonly string[];
}

/**
 * What a later daemon needs to find a running machine again and to be sure that it is the same one:
 * a pid alone may have been recycled. Plain data, kept in the state store.
 */
export interface MachineRecord {
  readonly id: MachineId;
  readonly pid: number;
  /** Field 22 of /proc/PID/stat: clock ticks after boot at which the process started. */
  readonly startTicks: number;
  /** /proc/sys/kernel/random/boot_id of the host at that time. */
  readonly hostBootId: string;
  /** Folder with the machine's sockets. */
  readonly runDir: string;
  /** Host uid that it runs under. */
  readonly uid: number;
}

/**
 * - `reset`: the guest asked for a reboot; the process is stopped and will not go on.
 * - `shutdown`: the guest powered off; stopped.
 * - `panic`: the guest's kernel panicked; stopped; `detail` is the tail of the console.
 * - `io-error`: the host could not write the disk; paused, goes on after `run()` when there is room.
 * - `exited`: the process is gone.
 */
export interface MachineEvent {
  readonly kind: "reset" | "shutdown" | "panic" | "io-error" | "exited";
  readonly detail: string;
}

/** What a checkpoint holds of a machine besides its disk. */
export interface MachineCut {
  readonly batches: readonly PageBatch[];
  readonly devices: Uint8Array<ArrayBuffer>;
}

/** How far a guest's monotonic clock is moved at a wake. */
export interface ClockAdvance {
  /** Not negative, at most 400 days. */
  readonly ms: number;
  /** What the guest's kernel takes for a second, in ticks of its time stamp counter. Null: as the host counts. */
  readonly tscHz: number | null;
}

export interface Machine {
  readonly record: MachineRecord;
  /** What the manifest says about it. */
  readonly facts: SubstrateFacts;
  /** Unix socket of the guest link's port. Someone must be connected and reading before `loadDevices`. */
  readonly linkPath: string;

  /** Called for every event from now on, and at once for one that already happened. Returns the undo. */
  onEvent(listener: (event: MachineEvent) => void): () => void;

  /**
   * Makes `attachDisk(chain)` and `loadDevices` quick: opens what lies below the chain's top, for reading
   * alone, and begins to wait for state. The top need not exist yet. Need not be called; once.
   */
  prepareWake(chain: DiskChain): Promise<void>;
  /** Gives the VM process the files of `chain` and puts them behind its disk. Before `run`. */
  attachDisk(chain: DiskChain): Promise<void>;
  /** Writes pages over the base. Only before the first `run`. */
  injectMemory(pages: AsyncIterable<PageBatch>): Promise<void>;
  /**
   * Loads CPU and device state. After memory and disk, before `run`; once. With `advance` the guest finds that this
   * much time passed on its monotonic clock, where it keeps time by `facts.movableClock`: waits that came due
   * end at once, others keep the rest of their time. Where the state cannot be moved nothing is loaded.
   */
  loadDevices(state: Uint8Array, advance?: ClockAdvance): Promise<void>;

  /** Lets the CPUs run. Idempotent. */
  run(): Promise<void>;
  /** Stops the CPUs and drains the disk. Idempotent. */
  pause(): Promise<void>;
  isRunning(): Promise<boolean>;

  /** How many pages differ from the base at this moment. The guest may run. */
  changedPages(): Promise<number>;
  /**
   * Makes `cut(layerPath)` short: does beforehand what can be done while the guest runs. Changes nothing
   * that the guest or a checkpoint could see, and need not be called.
   */
  prepareCut(layerPath: string): Promise<void>;
  /**
   * A whole cut of a machine that is to go on: stops the CPUs, reads all private pages, saves the devices
   * and covers the disk by an empty layer, all of that instant. The CPUs stand still afterwards, also where
   * it fails. The batches are in memory and in no order.
   */
  cut(layerPath: string): Promise<MachineCut>;
  /** Indexes of pages that may differ from the base, ascending. Meaningful while paused. */
  privatePages(): Promise<Uint32Array<ArrayBuffer>>;
  /** Contents of these pages, in batches. While paused. */
  readPages(indexes: Uint32Array<ArrayBuffer>): AsyncIterable<PageBatch>;
  /** CPU and device state without memory, at most 16 MiB. While paused. */
  saveDevices(): Promise<Uint8Array<ArrayBuffer>>;
  /**
   * Puts an empty layer (made by the checkpoint store) on top of the disk: what was the top is
   * immutable from then on. While paused.
   */
  addLayer(path: string): Promise<void>;
  /**
   * Copies what lies between the layer `below` and `top` into `top`, which then stands on `below`
   * directly. The guest may run. The layers between are closed and unchanged; nothing to do where there
   * are none. Takes as long as it takes to copy them. Refused where `top` is not what the machine writes.
   */
  mergeLayers(below: string, top: string): Promise<void>;
  /**
   * Makes the disk, and the layer that is written, this large, and tells the guest: also where they are so already,
   * because a guest that was loaded from a checkpoint may not know. The guest may run, and hears of it a moment
   * later. Refused where the disk is larger.
   */
  growDisk(bytes: number): Promise<void>;

  /** Proportional and private memory of the process, bytes, and CPU seconds it used. */
  usage(): Promise<{ pssBytes: number; privateBytes: number; cpuSeconds: number }>;
  /** Last 4 KiB of the guest's console, for messages to people. */
  consoleTail(): Promise<string>;

  /** Ends the process, waits until it is gone, removes its run folder. Idempotent. */
  kill(): Promise<void>;
  /** Lets go of the process without ending it (daemon shutdown). */
  release(): Promise<void>;
}

export interface Substrate {
  /** What a machine of this spec would be, without starting one. Compared with manifests. */
  facts(spec: MachineSpec): Promise<SubstrateFacts>;

  /**
   * Sets how many spares of this spec to keep ready and starts what is missing, in the background. One
   * that was taken is replaced at the next call: not beside the wake that took it.
   */
  keepSpares(spec: MachineSpec, count: number): void;
  /**
   * A VM process with the base mapped, paused, waiting for state: from the pool, or started now. A
   * spare that died in the pool is replaced unseen.
   * @throws `machine_start_failed`, `disk_full`
   */
  takeSpare(spec: MachineSpec): Promise<Machine>;
  /** Boots from the disk's own kernel, without memory state. Paused until `run`. */
  bootCold(spec: MachineSpec, disk: DiskChain): Promise<Machine>;
  /**
   * Boots with `basePath` (made here, size of memory, shared) as RAM. After `pause`, `saveDevices`
   * and `kill` the file is a template's base. Refuses RAM blocks that a checkpoint would not hold.
   */
  bootTemplate(
    spec: Omit<MachineSpec, "base">,
    disk: DiskChain,
    basePath: string,
  ): Promise<Machine>;

  /**
   * Bytes of pages whose injection takes about as long as starting another VM process, as measured on
   * this host. A delta beyond it is woken sooner from a base of the agent's own.
   */
  breakEvenBytes(): number;

  /** Whether the very process of this record still runs. */
  isAlive(record: MachineRecord): Promise<boolean>;
  /** Ends that process where it runs, and removes what is left of it. Idempotent. */
  end(record: MachineRecord): Promise<void>;
  /** The machine of this record if that very process still runs, else null. */
  adopt(record: MachineRecord, spec: MachineSpec): Promise<Machine | null>;
  /**
   * Ends every VM process that belongs to this data directory and is not in `keep` (left-over spares,
   * machines of attempts that died), and removes their run folders. Never another's process. Returns how many.
   */
  sweep(keep: readonly MachineId[]): Promise<number>;

  /** Stops keeping spares and ends them. Machines in use go on. */
  close(): Promise<void>;
}
