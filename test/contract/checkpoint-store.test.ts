import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import type { Digest } from "@perdure/protocol";
import { openKeyRing } from "../../packages/daemon/src/checkpoints/key-ring.ts";
import { openLocalCheckpointStore } from "../../packages/daemon/src/checkpoints/local/local-checkpoint-store.ts";
import { WorkPool } from "../../packages/daemon/src/checkpoints/work/pool.ts";
import { createSystemClock } from "../../packages/daemon/src/clock.ts";
import { checkpointStoreContract } from "./checkpoint-store.ts";

const pool = new WorkPool();
afterAll(() => pool.close());

checkpointStoreContract("local", async () => {
  const home = await mkdtemp(join(tmpdir(), "perdure-checkpoints-"));
  const bases = new Map<Digest, string>();
  const store = await openLocalCheckpointStore({
    home,
    pool,
    keyRing: await openKeyRing(home),
    clock: createSystemClock(),
    findTemplateBase: (_tenant, digest) => Promise.resolve(bases.get(digest) ?? null),
  });
  return {
    store,
    templateBase: async (bytes) => {
      const path = join(home, `base-${bases.size}`);
      await writeFile(path, bytes);
      const digest = await pool.digestFile("base", path, bytes.length);
      bases.set(digest, path);
      return { kind: "template", digest, path };
    },
    path: (name) => join(home, name),
    dispose: async () => {
      await store.close();
      await rm(home, { recursive: true });
    },
  };
});
