/** Guest links of the simulation: connects to the guest of a fake machine, at the level of the port. */
import { PerdureError } from "@perdure/protocol";
import type { GuestLink, GuestLinks } from "../../packages/daemon/src/core/ports/guest-link.ts";
import { echoConnection } from "./guest-connection.ts";
import { silentWayOut } from "./fake-egress.ts";
import { GuestWire, type LinkWorld } from "./guest-wire.ts";
import { processView } from "./guest.ts";

export function createGuestLinks(world: LinkWorld): GuestLinks {
  return {
    connect: (linkPath) =>
      world.life.during(async () => {
        await world.faults.point("links.connect");
        await world.life.pass();
        const process = world.host.byLink(linkPath);
        if (process === null) {
          throw new PerdureError("guest_unreachable", `Nothing listens at "${linkPath}"`);
        }
        const wire = new GuestWire(process, world);
        world.wires.add(wire);
        return createLink(wire);
      }),
  };
}

function createLink(wire: GuestWire): GuestLink {
  return {
    sync: (generation, deadlineMs) =>
      wire.control("sync", deadlineMs, (guest) => {
        wire.synced = true;
        guest.memory.generation = Math.max(guest.memory.generation, generation);
      }),
    letOut: () => wire.letOut(),
    droppedFrames: 0,
    closed: wire.closed,
    close: (reason) => wire.close(reason),
    hold: () => undefined,
    release: () => undefined,

    info: (deadlineMs) =>
      wire.control("info", deadlineMs, (guest) => ({
        version: "0.1.0",
        bootId: guest.memory.bootId,
        generation: guest.memory.generation,
        frozen: guest.memory.frozen,
        clock: { source: guest.memory.clockSource, tscHz: 2_000_000_000 },
      })),
    setClock: (deadlineMs) =>
      wire.control("setClock", deadlineMs, (guest) => {
        const movedMs = guest.setClock();
        return { skewMs: guest.wallSkewMs, boundMs: 0.5, roundTrips: 5, movedMs };
      }),
    useClockSource: (name) =>
      wire.control("useClockSource", 5000, (guest) => void (guest.memory.clockSource = name)),
    shortenFrozenWaits: () =>
      wire.control("shortenFrozenWaits", 5000, (guest) => guest.shortenFrozenWaits()),
    addEntropy: (bytes) =>
      wire.control("addEntropy", 5000, (guest) => {
        if (bytes.length >= 32) guest.memory.reseeds++;
      }),
    flush: (deadlineMs) => wire.control("flush", deadlineMs, () => undefined, "flush_timeout"),
    freeze: (deadlineMs) =>
      wire.control(
        "freeze",
        deadlineMs,
        (guest) => void (guest.memory.frozen = true),
        "freeze_timeout",
      ),
    thaw: () => wire.control("thaw", 5000, (guest) => wire.thaw(guest)),
    setGeneration: (generation) =>
      wire.control("setGeneration", 5000, (guest) => void (guest.memory.generation = generation)),
    setIdentity: (identity) =>
      wire.control("setIdentity", 5000, (guest) => guest.setIdentity(identity)),
    runHooks: (deadlineMs) => wire.control("runHooks", deadlineMs, () => []),
    stats: () =>
      Promise.reject(new PerdureError("not_supported", "The simulation has no statistics")),
    activity: () => wire.control("activity", 5000, (guest) => guest.activity),
    timers: () => wire.control("timers", 5000, (guest) => guest.timers),
    dropCaches: (deadlineMs) => wire.control("dropCaches", deadlineMs, () => undefined),
    shutdown: (deadlineMs) =>
      wire.control("shutdown", deadlineMs, (guest) => {
        setImmediate(() => guest.seat.happen("shutdown", "asked by the host"));
      }),

    exec: (request) =>
      wire.user("exec", (guest) => {
        const { process } = guest.exec(request.argv);
        return { process, pid: 100 + process };
      }),
    processes: () => wire.user("processes", (guest) => guest.memory.programs.map(processView)),
    attach: (process, offset) => wire.attach(process, offset),
    writeStdin: (process) => wire.user("writeStdin", (guest) => void guest.program(process)),
    signal: (process, signal) => wire.user("signal", (guest) => guest.kill(process, signal)),
    forget: (process) => wire.user("forget", (guest) => guest.forget(process)),
    resizeTerminal: () => Promise.reject(absent("terminals")),
    stat: () => Promise.reject(absent("files")),
    readFile: () => Promise.reject(absent("files")),
    writeFile: () => Promise.reject(absent("files")),
    listFolder: () => refused(absent("files")),
    makeFolder: () => Promise.reject(absent("files")),
    movePath: () => Promise.reject(absent("files")),
    removePath: () => Promise.reject(absent("files")),
    watch: () => refused(absent("files")),
    connect: async (port) => {
      await wire.user("connect", (guest) => guest.assertListening(port));
      return echoConnection(wire);
    },
    openWayOut: async () => {
      await wire.openWayOut();
      return silentWayOut(wire);
    },
  };
}

function absent(what: string): PerdureError {
  return new PerdureError("not_supported", `The simulation has no ${what}`);
}

function refused(error: PerdureError): AsyncIterable<never> {
  return { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(error) }) };
}
