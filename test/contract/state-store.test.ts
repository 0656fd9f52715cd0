import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSqliteStateStore } from "../../packages/daemon/src/state/sqlite/sqlite-state-store.ts";
import { createMemoryStateStore } from "./memory-state-store.ts";
import { stateStoreContract } from "./state-store.ts";

stateStoreContract("memory", () => {
  const store = createMemoryStateStore();
  return Promise.resolve({ store, dispose: () => store.close() });
});

stateStoreContract("sqlite", async () => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-store-"));
  const store = await openSqliteStateStore({ path: join(folder, "state.db") });
  return {
    store,
    dispose: async () => {
      await store.close();
      await rm(folder, { recursive: true });
    },
  };
});
