/** The real API server over fake commands, for tests of what calls it. */
import type { Health } from "@perdure/protocol";
import { openApiServer } from "../../../packages/daemon/src/api/server.ts";
import type { ApiServer } from "../../../packages/daemon/src/api/server.ts";
import { createFakeCommands } from "./fake-commands.ts";
import type { FakeCommands } from "./fake-commands.ts";

export type { FakeCommands } from "./fake-commands.ts";

export interface FakeServer {
  readonly commands: FakeCommands;
  readonly server: ApiServer;
  /** How often a shutdown was asked for. */
  shutdowns(): number;
  /** Cuts every connection and ends every program. */
  close(): Promise<void>;
}

export async function openFakeServer(
  socketPath: string,
  home: string,
  onShutdown?: () => void,
): Promise<FakeServer> {
  const commands = createFakeCommands();
  let shutdowns = 0;
  const health = (): Health => ({ version: "0.1.0", pid: process.pid, startedAtMs: 1.7e12, home });
  const server = await openApiServer({
    commands,
    socketPath,
    health,
    metrics: () => ({ loopDelayMs: { p50: 1, p99: 2, max: 3 } }),
    shutdown: () => {
      shutdowns += 1;
      onShutdown?.();
    },
  });
  return {
    commands,
    server,
    shutdowns: () => shutdowns,
    close: async () => {
      commands.dispose();
      await server.close(0);
    },
  };
}
