/**
 * For tests: a daemon without VMs, started like `perdured`. Each start adds a line to `starts` in its
 * home; like the real one it holds its data directory. `FAKE_DAEMON_FAILS` makes it end at once.
 */
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { createFakeCommands } from "../../daemon/src/api/fake-commands.ts";
import { openApiServer } from "../../daemon/src/api/server.ts";
import { openSqliteStateStore } from "../../daemon/src/state/sqlite/sqlite-state-store.ts";

const { home = "", socket = "" } = parseArgs({
  options: { home: { type: "string" }, socket: { type: "string" }, images: { type: "string" } },
}).values;
mkdirSync(home, { recursive: true });
appendFileSync(join(home, "starts"), `${process.pid}\n`);
if (process.env["FAKE_DAEMON_FAILS"] !== undefined) {
  console.error("perdured: no KVM, no TCG, no hope");
  process.exit(3);
}
const store = await openSqliteStateStore({ path: join(home, "state.db") });
const commands = createFakeCommands();
const server = await openApiServer({
  commands,
  socketPath: socket,
  health: () => ({ version: "0.0.0", pid: process.pid, startedAtMs: 1.7e12, home }),
  metrics: () => ({ loopDelayMs: { p50: 1, p99: 2, max: 3 } }),
  shutdown: () => void close(),
});
process.on("SIGTERM", () => void close());

async function close(): Promise<void> {
  commands.dispose();
  await server.close();
  await store.close();
  process.exit(0);
}
