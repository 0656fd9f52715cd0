/** Control operations: what the wake gate, the sleep and the idle watch ask of the guest agent. */
import { PerdureError, type ErrorCode, type GuestClockFacts } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type {
  GuestActivity,
  GuestClock,
  GuestIdentity,
  GuestInfo,
  GuestMemory,
  GuestStats,
  GuestTimer,
  HookResult,
} from "../core/ports/guest-link.ts";
import { call, type Call } from "./call.ts";
import { setGuestClock, type ClockReading } from "./clock-sync.ts";
import { ANSWER_GRACE_MS, CONTROL_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { decodeExit } from "./exit.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { operationVersion } from "./version.ts";
import { violation } from "./violation.ts";

export const TIMERS_MAX = 512;
const HOOKS_MAX = 1024;
const STATS_MAX = 256;
const ENTROPY_BYTES_MIN = 32;
const ENTROPY_BYTES_MAX = 512;

/** The operations of one epoch that are allowed at any time. */
export class Control {
  readonly #epoch: Epoch;
  readonly #clock: Clock;

  constructor(epoch: Epoch, clock: Clock) {
    this.#epoch = epoch;
    this.#clock = clock;
  }

  info(deadlineMs: number): Promise<GuestInfo> {
    return this.#call({
      op: operation.info,
      action: "ask the guest agent who it is",
      deadlineMs,
      decode: (fields) => ({
        version: fields.string(tag.version, 256),
        bootId: fields.string(tag.bootId, 256),
        generation: fields.number(tag.generation),
        frozen: fields.flag(tag.frozen),
        clock: decodeClock(fields),
      }),
    });
  }

  setClock(deadlineMs: number): Promise<GuestClock> {
    const reading = (fields: Fields): ClockReading => ({
      guestMs: decodeRealtimeMs(fields),
      atMs: this.#clock.monotonicMs(),
    });
    const probe = {
      ping: (leftMs: number) =>
        this.#call({
          op: operation.ping,
          action: "read the guest's clock",
          deadlineMs: leftMs,
          decode: reading,
        }),
      adjust: (deltaMs: number, leftMs: number) =>
        this.#call({
          op: operation.clockAdjust,
          action: "set the guest's clock",
          deadlineMs: leftMs,
          fields: new FieldWriter().signed(tag.deltaNs, BigInt(Math.round(deltaMs * 1e6))),
          decode: reading,
        }),
    };
    return setGuestClock(probe, this.#clock, deadlineMs);
  }

  async addEntropy(bytes: Uint8Array): Promise<void> {
    if (bytes.length < ENTROPY_BYTES_MIN || bytes.length > ENTROPY_BYTES_MAX) {
      throw new PerdureError(
        "bad_request",
        `Cannot add entropy: ${bytes.length} bytes given, ${ENTROPY_BYTES_MIN} to ${ENTROPY_BYTES_MAX} are allowed`,
      );
    }
    return this.#call({
      op: operation.entropy,
      action: "add entropy",
      deadlineMs: CONTROL_DEADLINE_MS,
      fields: new FieldWriter().bytes(tag.bytes, bytes),
      decode: nothing,
    });
  }

  flush(deadlineMs: number): Promise<void> {
    const action = "flush the guest's file systems";
    return renamed("flush_timeout", this.#timed(operation.flush, action, deadlineMs));
  }

  freeze(deadlineMs: number): Promise<void> {
    const action = "freeze the workload";
    return renamed("freeze_timeout", this.#timed(operation.freeze, action, deadlineMs));
  }

  thaw(): Promise<void> {
    return this.#call({
      op: operation.thaw,
      action: "thaw the workload",
      deadlineMs: CONTROL_DEADLINE_MS,
      decode: nothing,
    });
  }

  useClockSource(name: string): Promise<void> {
    return this.#call({
      op: operation.clockSource,
      action: `have the guest keep time by "${name}"`,
      deadlineMs: CONTROL_DEADLINE_MS,
      fields: new FieldWriter().string(tag.name, name),
      decode: nothing,
    });
  }

  shortenFrozenWaits(): Promise<number> {
    return this.#call({
      op: operation.frozenWaits,
      action: "take the time of the freeze off waits",
      deadlineMs: CONTROL_DEADLINE_MS,
      decode: (fields) => fields.number(tag.value),
    });
  }

  setGeneration(generation: number, json: string): Promise<void> {
    return this.#call({
      op: operation.generation,
      action: `write generation ${generation} into the VM`,
      deadlineMs: CONTROL_DEADLINE_MS,
      fields: new FieldWriter().number(tag.generation, generation).string(tag.json, json),
      decode: nothing,
    });
  }

  setIdentity(identity: GuestIdentity): Promise<void> {
    const fields = new FieldWriter()
      .string(tag.hostname, identity.hostname)
      .string(tag.machineId, identity.machineId)
      .string(tag.bootId, identity.bootId);
    for (const { path, mode, bytes } of identity.files) {
      fields.nested(
        tag.file,
        new FieldWriter().string(tag.path, path).number(tag.mode, mode).bytes(tag.bytes, bytes),
      );
    }
    return this.#call({
      op: operation.identity,
      action: "give the VM its identity",
      deadlineMs: CONTROL_DEADLINE_MS,
      fields,
      decode: nothing,
    });
  }

  runHooks(deadlineMs: number): Promise<readonly HookResult[]> {
    return this.#call({
      op: operation.hooks,
      action: "run the resume hooks",
      deadlineMs: deadlineMs + ANSWER_GRACE_MS,
      fields: new FieldWriter().number(tag.deadlineMs, deadlineMs),
      decode: (fields) => fields.nested(tag.hook, HOOKS_MAX).map(decodeHook),
    });
  }

  stats(): Promise<GuestStats> {
    return this.#call({
      op: operation.stats,
      action: "read the guest's statistics",
      deadlineMs: CONTROL_DEADLINE_MS,
      decode: decodeStats,
    });
  }

  /** A guest that does not know the restriction tells everything. */
  memory(): Promise<GuestMemory> {
    return this.#call({
      op: operation.stats,
      action: "read how the guest uses its memory",
      deadlineMs: CONTROL_DEADLINE_MS,
      fields: new FieldWriter().string(tag.kind, "memory"),
      decode: (fields) => memoryOf(new StatReader(fields)),
    });
  }

  timers(): Promise<readonly GuestTimer[]> {
    return this.#call({
      op: operation.timers,
      action: "list the guest's timers",
      deadlineMs: CONTROL_DEADLINE_MS,
      decode: (fields) =>
        fields.nested(tag.timer, TIMERS_MAX).map((timer) => ({
          pid: timer.number(tag.pid),
          // A thread calls itself what it likes.
          name: timer.anyString(tag.name, 256),
          dueInMs: timer.number(tag.dueInMs),
        })),
    });
  }

  /** A guest that does not know the operation is asked for everything; it tells less of what is meant. */
  activity(): Promise<GuestActivity> {
    const known = this.#epoch.version >= operationVersion(operation.activity);
    return this.#call({
      op: known ? operation.activity : operation.stats,
      action: "ask what goes on in the VM",
      deadlineMs: CONTROL_DEADLINE_MS,
      decode: (fields) => {
        const stats = new StatReader<keyof GuestActivity>(fields);
        const added = (name: "execs" | "fileWrites" | "attached"): number | null =>
          known ? stats.value(name) : null;
        return {
          cpuUsec: stats.value("cpuUsec"),
          diskWriteBytes: stats.value("diskWriteBytes"),
          execs: added("execs"),
          fileWrites: added("fileWrites"),
          attached: added("attached"),
        };
      },
    });
  }

  dropCaches(deadlineMs: number): Promise<void> {
    return this.#timed(operation.dropCaches, "drop the guest's caches", deadlineMs);
  }

  shutdown(deadlineMs: number): Promise<void> {
    return this.#timed(operation.shutdown, "shut the VM down", deadlineMs, CONTROL_DEADLINE_MS);
  }

  #timed(
    op: Call<unknown>["op"],
    action: string,
    deadlineMs: number,
    graceMs = ANSWER_GRACE_MS,
  ): Promise<void> {
    return this.#call({
      op,
      action,
      deadlineMs: deadlineMs + graceMs,
      fields: new FieldWriter().number(tag.deadlineMs, deadlineMs),
      decode: nothing,
    });
  }

  #call<T>(wanted: Omit<Call<T>, "control">): Promise<T> {
    return call(this.#epoch, this.#clock, { ...wanted, control: true });
  }
}

function nothing(): void {
  // The answer says no more than that it was done.
}

/** Gives `deadline_exceeded` the name that it has for this operation. */
async function renamed(code: ErrorCode, work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof PerdureError) || error.code !== "deadline_exceeded") throw error;
    throw new PerdureError(code, error.message, { details: error.details, cause: error });
  }
}

function decodeRealtimeMs(fields: Fields): number {
  const ns = fields.wide(tag.realtimeNs);
  if (ns >= 2n ** 63n) throw violation("a wall clock out of range");
  return Number(ns / 1000n) / 1000;
}

/** A rate that cannot be one is not known: the guest's own word on its own clock. */
function decodeClock(fields: Fields): GuestClockFacts | null {
  const source = fields.optionalString(tag.name, 64);
  if (source === undefined || source === "") return null;
  const hz = fields.optionalNumber(tag.value) ?? 0;
  return { source, tscHz: hz > 0 ? hz : null };
}

function decodeHook(fields: Fields): HookResult {
  return {
    path: fields.anyString(tag.path, 4096),
    ...decodeExit(fields),
    output: new TextDecoder().decode(fields.optionalBytes(tag.bytes) ?? new Uint8Array()),
  };
}

class StatReader<Name extends string = keyof GuestStats> {
  readonly #values = new Map<string, number>();

  constructor(fields: Fields) {
    for (const stat of fields.nested(tag.stat, STATS_MAX)) {
      this.#values.set(stat.string(tag.name, 64), stat.number(tag.value));
    }
  }

  value(name: Name): number {
    const found = this.#values.get(name);
    if (found === undefined) throw violation(`the statistic ${name} is missing`);
    return found;
  }

  optional(name: Name): number | null {
    return this.#values.get(name) ?? null;
  }
}

function memoryOf(stats: StatReader): GuestMemory {
  return {
    memTotalBytes: stats.value("memTotalBytes"),
    memAvailableBytes: stats.value("memAvailableBytes"),
    anonBytes: stats.value("anonBytes"),
    shmemBytes: stats.value("shmemBytes"),
    cachedBytes: stats.value("cachedBytes"),
    buffersBytes: stats.optional("buffersBytes"),
    slabBytes: stats.optional("slabBytes"),
    slabReclaimableBytes: stats.optional("slabReclaimableBytes"),
  };
}

function decodeStats(fields: Fields): GuestStats {
  const stats = new StatReader(fields);
  return {
    ...memoryOf(stats),
    cpuUsec: stats.value("cpuUsec"),
    processes: stats.value("processes"),
    load1Milli: stats.value("load1Milli"),
    diskTotalBytes: stats.value("diskTotalBytes"),
    diskFreeBytes: stats.value("diskFreeBytes"),
    diskWriteBytes: stats.value("diskWriteBytes"),
  };
}
