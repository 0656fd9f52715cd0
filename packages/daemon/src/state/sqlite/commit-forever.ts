/**
 * For the crash test: commits agents in bursts for ever and prints the id of each one after its
 * commit was acknowledged. `node commit-forever.ts DATABASE`; ended by SIGKILL.
 */
import { randomBytes } from "node:crypto";
import { writeSync } from "node:fs";
import { makeId } from "@perdure/protocol";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";
import { openSqliteStateStore } from "./sqlite-state-store.ts";

const store = await openSqliteStateStore({ path: process.argv[2] ?? "" });
for (;;) {
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      const id = makeId("ag", Date.now(), randomBytes(10));
      const agent = sampleAgent(id.replace("_", "-"), { id });
      await store.commit([{ kind: "insert-agent", agent }]);
      await store.commit([
        { kind: "update-agent", agent: { ...agent, revision: 1 }, expectedRevision: 0 },
      ]);
      writeSync(1, `${id}\n`);
    }),
  );
}
