/**
 * A crowd of sleeping agents, made from one that really sleeps: 10,000 real creates and sleeps would take
 * hours. Each gets a row, a checkpoint's row, a folder, a key and a signed manifest of its own; packs, page
 * map, devices and layers are second names of the original's files. A daemon lists, settles and collects
 * them like any other; none could be woken, because the memory is under the original's key.
 *
 * This writes with the product's own code, while no daemon runs; what is measured later does not use it.
 */
import { link, mkdir, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { randomBytes } from "node:crypto";
import { AgentFolder } from "@perdure/daemon/checkpoints/local/agent-folder.ts";
import { openKeyRing } from "@perdure/daemon/checkpoints/key-ring.ts";
import { decodeManifest, encodeManifest } from "@perdure/daemon/checkpoints/signature.ts";
import { openSqliteStateStore } from "@perdure/daemon/state/sqlite/sqlite-state-store.ts";
import { makeId, type AgentId } from "@perdure/protocol";
import { readFile } from "node:fs/promises";

const ROWS_PER_COMMIT = 500;

/** Gives the sleeping agent `of` in `home` the company of one agent for each of `names`. */
export async function writeCrowd(
  home: string,
  of: AgentId,
  names: readonly string[],
): Promise<void> {
  const keys = await openKeyRing(home);
  const state = await openSqliteStateStore({ path: path.join(home, "perdure.db") });
  try {
    const agent = await state.agent(of);
    const checkpoint = agent?.head == null ? null : await state.checkpoint(agent.head.checkpoint);
    if (agent?.state !== "asleep" || checkpoint === null) throw new Error("It does not sleep");
    const origin = new AgentFolder(home, of);
    const { manifest } = decodeManifest(
      keys.signing,
      await readFile(origin.manifest(checkpoint.id)),
    );
    for (let at = 0; at < names.length; at += ROWS_PER_COMMIT) {
      const changes = names.slice(at, at + ROWS_PER_COMMIT).map(async (name) => {
        const id = makeId("ag", Date.now(), randomBytes(10));
        const newest = makeId("cp", Date.now(), randomBytes(10));
        const folder = new AgentFolder(home, id);
        const { file, digest } = encodeManifest(keys.signing, {
          ...manifest,
          agent: id,
          checkpoint: newest,
        });
        await mkdir(folder.path, { mode: 0o711 });
        for (const name of ["packs", "bases", "layers"] as const) {
          await linkAll(origin[name], folder[name]);
        }
        await mkdir(folder.checkpoints, { mode: 0o711 });
        await linkAll(origin.checkpoint(checkpoint.id), folder.checkpoint(newest), "manifest.json");
        await writeFile(folder.manifest(newest), file, { mode: 0o600 });
        await keys.createAgentKey(folder.key, id);
        const report = agent.report === null ? null : { ...agent.report, agent: id, name };
        return [
          {
            kind: "insert-agent",
            agent: { ...agent, id, name, report, head: { checkpoint: newest, continued: false } },
          },
          {
            kind: "insert-checkpoint",
            checkpoint: { ...checkpoint, id: newest, agent: id, digest },
          },
        ] as const;
      });
      await state.commit((await Promise.all(changes)).flat());
    }
  } finally {
    await state.close();
  }
}

async function linkAll(from: string, to: string, but?: string): Promise<void> {
  await mkdir(to, { mode: 0o711 });
  for (const name of await readdir(from)) {
    if (name !== but) await link(path.join(from, name), path.join(to, name));
  }
}
