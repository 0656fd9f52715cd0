/**
 * For tests: a daemon without VMs, started like `perdured`. Each start adds a line to `starts` in its
 * home; like the real one it holds its data directory. `FAKE_DAEMON_FAILS` makes it end at once. A
 * checkpoint named `never-ends` does not; once it has begun, file `begun` is in the home.
 */
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openSqliteStateStore } from "../../../packages/daemon/src/state/sqlite/sqlite-state-store.ts";
import { openFakeServer } from "./fake-server.ts";

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
const fake = await openFakeServer(socket, home, { onShutdown: () => void close(), state: store });
const execute = fake.commands.execute.bind(fake.commands);
fake.commands.execute = (command) => {
  if (command.kind !== "checkpoint" || command.name !== "never-ends") return execute(command);
  appendFileSync(join(home, "begun"), "");
  return new Promise(() => undefined);
};
process.on("SIGTERM", () => void close());

async function close(): Promise<void> {
  await fake.close();
  await store.close();
  process.exit(0);
}
