/** Template store in memory. What it holds outlives a daemon; a build that dies leaves nothing. */
import { digestOf, makeId, type Digest } from "@perdure/protocol";
import type {
  Template,
  TemplateStore,
} from "../../packages/daemon/src/core/ports/template-store.ts";
import type { MemoryFiles } from "../../packages/daemon/src/substrate/fake/fake-file.ts";
import type { Faults } from "../../packages/daemon/src/substrate/fake/fault.ts";
import type { Life } from "../../packages/daemon/src/substrate/fake/life.ts";
import type { Random } from "./random.ts";

export type TemplateFolder = Map<Digest, Template>;

export interface MemoryTemplateStoreOptions {
  readonly folder: TemplateFolder;
  readonly files: MemoryFiles;
  readonly faults: Faults;
  readonly life: Life;
  readonly random: Random;
  readonly nowMs: () => number;
}

export function createMemoryTemplateStore(options: MemoryTemplateStoreOptions): TemplateStore {
  const { folder, files, faults, life, random } = options;
  const building = new Map<Digest, Promise<void>>();
  const build = async (
    key: Digest,
    diskBytes: number | null,
    boot: Parameters<TemplateStore["build"]>[2],
  ): Promise<void> => {
    await faults.point("templates.build");
    await life.pass();
    if (folder.has(key)) return;
    const basePath = `/fake/templates/${key}/base`;
    const id = makeId("dl", options.nowMs(), random.bytes(10));
    const layer = diskBytes === null ? null : { id, path: `/fake/templates/${key}/${id}` };
    if (layer !== null) files.write(layer.path, Buffer.from("{}"));
    try {
      const { substrate, devices } = await boot({ basePath, layer });
      await life.pass();
      const base = files.read(basePath);
      if (base === null) throw new Error("The boot left no base");
      folder.set(key, {
        key,
        substrate,
        base: { kind: "template", digest: digestOf({ base: key }) as Digest, path: basePath },
        devices,
        layer: layer === null ? null : { ...layer, digest: digestOf({ layer: key }) as Digest },
        createdAtMs: options.nowMs(),
      });
    } catch (error) {
      files.all.delete(basePath);
      if (layer !== null) files.all.delete(layer.path);
      throw error;
    }
  };
  return {
    open: (_tenant, key) =>
      life.during(async () => {
        await faults.point("templates.open");
        return folder.get(key) ?? null;
      }),
    build: async (key, diskBytes, boot) => {
      const under = building.get(key) ?? build(key, diskBytes, boot);
      building.set(key, under);
      try {
        await under;
      } finally {
        building.delete(key);
        await life.pass();
      }
    },
    forget: () => Promise.resolve([]),
  };
}
