/** What the fake guest does for each operation. */
import { type Fields, FieldWriter } from "../field.ts";
import { operation, status, tag } from "../operation.ts";
import { connect } from "./fake-connect.ts";
import { FakeFailure, uidOf } from "./fake-file.ts";
import { carry, outbound } from "./fake-outbound.ts";

import type { FakeStream } from "./fake-port.ts";
import { listFolder, makeFolder, movePath, removePath, watch } from "./fake-path-operation.ts";
import type { FakeInside } from "./fake-state.ts";
import {
  attach,
  exec,
  factFields,
  find,
  listProcesses,
  openStdin,
  readFile,
  resize,
  running,
  writeFile,
} from "./fake-user-operation.ts";

const FAKE_TSC_HZ = 2_000_000_000;

type Run = (guest: FakeInside, stream: FakeStream, fields: Fields) => void;

export const fakeOperations: ReadonlyMap<number, Run> = new Map<number, Run>([
  [
    operation.info,
    (guest, stream) =>
      stream.respond(
        status.ok,
        clockFields(guest)
          .string(tag.version, "fake")
          .string(tag.bootId, guest.state.bootId)
          .number(tag.generation, guest.state.generation)
          .flag(tag.frozen, guest.state.frozen)
          .string(tag.name, guest.state.clockSource)
          .number(tag.value, FAKE_TSC_HZ),
      ),
  ],
  [operation.ping, (guest, stream) => stream.respond(status.ok, clockFields(guest))],
  [
    operation.clockAdjust,
    (guest, stream, fields) => {
      guest.state.skewMs += Number(BigInt.asIntN(64, fields.wide(tag.deltaNs))) / 1e6;
      stream.respond(status.ok, clockFields(guest));
    },
  ],
  [
    operation.entropy,
    (guest, stream, fields) => {
      fields.bytes(tag.bytes);
      guest.state.entropyAdded++;
      stream.respond(status.ok);
    },
  ],
  [operation.clockSource, setClockSource],
  [
    operation.frozenWaits,
    (guest, stream) => {
      if (!guest.state.frozen) throw new FakeFailure(status.badRequest, "Nothing is frozen");
      stream.respond(status.ok, new FieldWriter().number(tag.value, 0));
    },
  ],
  [operation.flush, done],
  [operation.freeze, (guest, stream) => setFrozen(guest, stream, true)],
  [operation.thaw, (guest, stream) => setFrozen(guest, stream, false)],
  [
    operation.generation,
    (guest, stream, fields) => {
      guest.state.generation = fields.number(tag.generation);
      guest.state.generationJson = fields.string(tag.json);
      stream.respond(status.ok);
    },
  ],
  [operation.identity, setIdentity],
  [operation.hooks, done],
  [operation.exec, exec],
  [operation.connect, connect],
  [operation.outbound, outbound],
  [operation.carry, carry],
  [operation.attach, attach],
  [operation.stdin, openStdin],
  [
    operation.signal,
    (guest, stream, fields) => {
      const process = running(guest, fields);
      process.signal(fields.number(tag.signal, 64));
      stream.respond(status.ok);
    },
  ],
  [operation.processes, listProcesses],
  [
    operation.forget,
    (guest, stream, fields) => {
      const process = find(guest, fields);
      if (process.state.exit === null) throw new FakeFailure(status.processRunning, "It runs");
      guest.forget(process);
      stream.respond(status.ok);
    },
  ],
  [operation.readFile, readFile],
  [operation.writeFile, writeFile],
  [
    operation.stat,
    (guest, stream, fields) => {
      const file = guest.files.stat(fields.string(tag.path), uidOf(fields.string(tag.user)));
      stream.respond(status.ok, factFields(file, Buffer.byteLength(file.content, "base64")));
    },
  ],
  [operation.resize, resize],
  [operation.listFolder, listFolder],
  [operation.makeFolder, makeFolder],
  [operation.movePath, movePath],
  [operation.removePath, removePath],
  [operation.watch, watch],
  [operation.activity, activity],
  [operation.stats, stats],
  [operation.timers, timers],
  [
    operation.dropCaches,
    (guest, stream) => {
      guest.state.cachedBytes = 0;
      stream.respond(status.ok);
    },
  ],
  [
    operation.shutdown,
    (guest, stream) => {
      stream.respond(status.ok);
      setImmediate(() => guest.powerOff());
    },
  ],
]);

function done(_guest: FakeInside, stream: FakeStream): void {
  stream.respond(status.ok);
}

function clockFields(guest: FakeInside): FieldWriter {
  return new FieldWriter()
    .number(tag.realtimeNs, BigInt(Math.round(guest.nowMs() * 1000)) * 1000n)
    .number(tag.monotonicNs, BigInt(Math.round(guest.clock.monotonicMs() * 1e6)));
}

function setClockSource(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const name = fields.string(tag.name);
  if (name !== "tsc" && name !== "acpi_pm") {
    throw new FakeFailure(status.notSupported, "The kernel stays as it is");
  }
  guest.state.clockSource = name;
  stream.respond(status.ok);
}

function setFrozen(guest: FakeInside, stream: FakeStream, frozen: boolean): void {
  guest.state.frozen = frozen;
  guest.poke();
  stream.respond(status.ok);
}

function setIdentity(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  guest.state.hostname = fields.string(tag.hostname);
  guest.state.machineId = fields.string(tag.machineId);
  guest.state.bootId = fields.string(tag.bootId);
  for (const file of fields.nested(tag.file, 64)) {
    const mode = file.number(tag.mode);
    try {
      const written = { mode, bytes: file.bytes(tag.bytes), attributes: {} };
      guest.files.write(file.string(tag.path), 0, written, guest.nowMs());
    } catch (error) {
      if (!(error instanceof FakeFailure)) throw error;
    }
  }
  stream.respond(status.ok);
}

function stats(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const memory = {
    memTotalBytes: 2 ** 29,
    memAvailableBytes: 2 ** 28,
    memFreeBytes: 2 ** 27,
    anonBytes: 2 ** 24,
    shmemBytes: 0,
    cachedBytes: guest.state.cachedBytes,
    buffersBytes: 2 ** 20,
    dirtyBytes: 0,
    unevictableBytes: 0,
    slabBytes: 2 ** 23,
    slabReclaimableBytes: 2 ** 22,
  };
  const everything = {
    ...memory,
    cpuUsec: 1000,
    processes: [...guest.processes.values()].filter(({ state }) => state.exit === null).length,
    load1Milli: 0,
    diskTotalBytes: 2 ** 33,
    diskFreeBytes: 2 ** 32,
    diskWriteBytes: 0,
  };
  stream.respond(
    status.ok,
    statFields(fields.optionalString(tag.kind) === "memory" ? memory : everything),
  );
}

function activity(guest: FakeInside, stream: FakeStream): void {
  let attached = 0;
  for (const process of guest.processes.values()) attached += process.readers.size;
  const { nextProcess, fileWrites } = guest.state;
  stream.respond(
    status.ok,
    statFields({ cpuUsec: 1000, diskWriteBytes: 0, execs: nextProcess - 1, fileWrites, attached }),
  );
}

function statFields(stats: Readonly<Record<string, number>>): FieldWriter {
  const fields = new FieldWriter();
  for (const [name, value] of Object.entries(stats)) {
    fields.nested(tag.stat, new FieldWriter().string(tag.name, name).number(tag.value, value));
  }
  return fields;
}

/** A process that sleeps has a timer, due when the step began plus its length: good enough here. */
function timers(guest: FakeInside, stream: FakeStream): void {
  const fields = new FieldWriter();
  for (const { state } of guest.processes.values()) {
    const step = state.steps[0];
    if (state.exit !== null || step?.kind !== "sleep") continue;
    fields.nested(
      tag.timer,
      new FieldWriter()
        .number(tag.pid, state.pid)
        .string(tag.name, "sleep")
        .number(tag.dueInMs, Math.round(step.ms)),
    );
  }
  stream.respond(status.ok, fields);
}
