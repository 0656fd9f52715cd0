/** The real API server over fake commands, for tests of what calls it. */
import { join } from "node:path";
import type { Health } from "@perdure/protocol";
import { RequestKeeper } from "../../../packages/daemon/src/api/request-keeper.ts";
import type { StateStore } from "../../../packages/daemon/src/core/ports/state-store.ts";
import { openApiServer } from "../../../packages/daemon/src/api/server.ts";
import type { ApiServer } from "../../../packages/daemon/src/api/server.ts";
import type { TcpListen } from "../../../packages/daemon/src/api/tcp.ts";
import { createSystemClock } from "../../../packages/daemon/src/clock.ts";
import type { Log } from "../../../packages/daemon/src/core/ports/log.ts";
import { EventLog } from "../../../packages/daemon/src/core/event-log.ts";
import { createMemoryStateStore } from "../memory-state-store.ts";
import { createFakeCommands } from "./fake-commands.ts";
import type { FakeCommands } from "./fake-commands.ts";
import { createFakeImages } from "./fake-images.ts";
import type { FakeImages } from "./fake-images.ts";

export type { FakeCommands } from "./fake-commands.ts";

export interface FakeServer {
  readonly commands: FakeCommands;
  readonly images: FakeImages;
  readonly server: ApiServer;
  readonly socketPath: string;
  /** Holds the event log and the requests that are kept; the commands do not touch it. */
  readonly state: StateStore;
  /** How often a shutdown was asked for. */
  shutdowns(): number;
  /** Cuts every connection and ends every program. */
  close(): Promise<void>;
}

export interface FakeServerOptions {
  readonly onShutdown?: () => void;
  readonly state?: StateStore;
  /** Of a server that was there before. */
  readonly commands?: FakeCommands;
  readonly pingMs?: number;
  readonly previewAnswerMs?: number;
  readonly handshakeMs?: number;
  readonly tcp?: TcpListen | null;
  readonly daemonLog?: Log;
  readonly wrapImages?: (images: FakeImages) => FakeImages;
}

export async function openFakeServer(
  socketPath: string,
  home: string,
  {
    onShutdown,
    state = createMemoryStateStore(),
    commands = createFakeCommands(),
    pingMs,
    previewAnswerMs,
    handshakeMs,
    tcp = null,
    daemonLog = () => undefined,
    wrapImages = (images) => images,
  }: FakeServerOptions = {},
): Promise<FakeServer> {
  let shutdowns = 0;
  const images = wrapImages(createFakeImages());
  const health = (): Health => ({
    ...{ version: "0.1.0", pid: process.pid, startedAtMs: 1.7e12, home },
    ...{ url: null, authorityFile: null },
  });
  const server = await openApiServer({
    commands,
    images,
    socketPath,
    tcp,
    state,
    clock: createSystemClock(),
    daemonLog,
    requestKeeper: createRequestKeeper(state),
    ...(pingMs === undefined ? {} : { pingMs }),
    ...(previewAnswerMs === undefined ? {} : { previewAnswerMs }),
    ...(handshakeMs === undefined ? {} : { handshakeMs }),
    events: createEventLog(state),
    tokenKey: new Uint8Array(32).fill(7),
    spoolDir: join(home, "spool"),
    health,
    metrics: () => ({ loopDelayMs: { p50: 1, p99: 2, max: 3 } }),
    shutdown: () => {
      shutdowns += 1;
      onShutdown?.();
    },
  });
  return {
    commands,
    images,
    server,
    socketPath,
    state,
    shutdowns: () => shutdowns,
    close: async () => {
      commands.dispose();
      await server.close(0);
    },
  };
}

/** Over a store in memory, and the clock of the test's host. */
export function createRequestKeeper(state = createMemoryStateStore()): RequestKeeper {
  return new RequestKeeper({ state, clock: { nowMs: () => Date.now() }, log: () => undefined });
}

export function createEventLog(state = createMemoryStateStore()): EventLog {
  return new EventLog({ state, clock: createSystemClock(), log: () => undefined });
}
