/** For tests: a store in a folder of its own, with a template base, and its files within reach. */
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AgentId, Digest } from "@perdure/protocol";
import { sampleBase } from "../../../../../test/contract/checkpoint-store-sample.ts";
import type { MemoryBase } from "../../core/ports/substrate.ts";
import { createSystemClock } from "../../clock.ts";
import { openKeyRing } from "../key-ring.ts";
import type { KeyRing } from "../key-ring.ts";
import type { WorkPool } from "../work/pool.ts";
import { AgentFolder } from "./agent-folder.ts";
import { openLocalCheckpointStore } from "./local-checkpoint-store.ts";
import type {
  LocalCheckpointStore,
  LocalCheckpointStoreOptions,
} from "./local-checkpoint-store.ts";

export class StoreHome {
  readonly home: string;
  readonly keyRing: KeyRing;
  readonly #pool: WorkPool;

  constructor(home: string, keyRing: KeyRing, pool: WorkPool) {
    this.home = home;
    this.keyRing = keyRing;
    this.#pool = pool;
  }

  /** The store, as after a start of the daemon. */
  async open(options: Partial<LocalCheckpointStoreOptions> = {}): Promise<LocalCheckpointStore> {
    return await openLocalCheckpointStore({
      home: this.home,
      keyRing: this.keyRing,
      clock: createSystemClock(),
      pool: this.#pool,
      findTemplateBase: () => Promise.resolve(join(this.home, "base")),
      ...options,
    });
  }

  folder(agent: AgentId): AgentFolder {
    return new AgentFolder(this.home, agent);
  }

  /** Writes the base file that `findTemplateBase` answers with. */
  async base(): Promise<MemoryBase & { readonly kind: "template" }> {
    const path = join(this.home, "base");
    await writeFile(path, sampleBase(3));
    return { kind: "template", digest: "5".repeat(64) as Digest, path };
  }

  /** Every file of the agent, by path within its folder. */
  async files(agent: AgentId): Promise<string[]> {
    const { path } = this.folder(agent);
    const entries = await readdir(path, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(path.length + 1))
      .sort();
  }

  async dispose(): Promise<void> {
    await rm(this.home, { recursive: true, force: true });
  }
}

export async function makeStoreHome(pool: WorkPool): Promise<StoreHome> {
  const home = await mkdtemp(join(tmpdir(), "perdure-home-"));
  return new StoreHome(home, await openKeyRing(home), pool);
}
