/**
 * Builds a template in the images folder: a draft folder is filled by a boot, hashed, made durable and
 * renamed. A crash at any point leaves nothing under the key; the next builder removes the draft.
 */
import { hash } from "node:crypto";
import { chmod, mkdir, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { PerdureError, makeId } from "@perdure/protocol";
import type { Digest, LayerId } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { TemplateDraft, TemplateStore } from "../../core/ports/template-store.ts";
import { FOLDER_MODE, syncFile, syncFolder, temporaryPath, writeNew } from "../durable.ts";
import { diskFull, isDiskFull } from "../store-error.ts";
import type { WorkPool } from "../work/pool.ts";
import { allocatedBytes } from "./collect.ts";
import type { EmptyLayers } from "./empty-layer.ts";
import { noPages, writeBaseFile } from "./own-base.ts";
import { encodeRecord } from "./template-record.ts";
import type { TemplateRecord } from "./template-record.ts";

/** Bases and layers of templates hold nothing secret and are immutable: every VM process may read them. */
const sharedMode = 0o444;

export interface TemplateBuild {
  readonly key: Digest;
  readonly image: Digest | undefined;
  readonly diskBytes: number | null;
  readonly boot: Parameters<TemplateStore["build"]>[2];
  readonly pool: WorkPool;
  readonly clock: Clock;
  readonly emptyLayers: EmptyLayers;
}

/** `path` is the template's folder, which does not exist. The caller holds the key's lock. */
export async function buildTemplate(path: string, build: TemplateBuild): Promise<void> {
  await removeDrafts(dirname(path), build.key);
  const draftPath = temporaryPath(path);
  await mkdir(draftPath, { mode: FOLDER_MODE });
  try {
    const record = await fill(draftPath, build);
    await writeNew(join(draftPath, "template.json"), encodeRecord(record));
    await chmod(draftPath, 0o755);
    await syncFolder(draftPath);
    await rename(draftPath, path);
    await syncFolder(dirname(path));
  } catch (error) {
    // What was written, and the base once more: it is copied after the boot.
    const needBytes = 2 * (await allocatedBytes(draftPath));
    await rm(draftPath, { recursive: true, force: true });
    if (error instanceof PerdureError || !isDiskFull(error)) throw error;
    throw await diskFull(dirname(path), `build template "${build.key}"`, needBytes);
  }
}

async function removeDrafts(folder: string, key: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (name.startsWith(`.${key}.`) && !name.endsWith(".lock")) {
      await rm(join(folder, name), { recursive: true, force: true });
    }
  }
}

async function fill(path: string, build: TemplateBuild): Promise<TemplateRecord> {
  const { key, pool, clock } = build;
  const draft: TemplateDraft = {
    basePath: join(path, "booted"),
    layer:
      build.diskBytes === null
        ? null
        : {
            id: makeId("dl", clock.nowMs(), clock.randomBytes(10)),
            path: join(path, "layer.qcow2"),
          },
  };
  if (draft.layer !== null && build.diskBytes !== null) {
    await build.emptyLayers.create(draft.layer.path, build.diskBytes);
  }
  const { substrate, devices } = await build.boot(draft);
  const base = await keepBase(pool, draft.basePath, join(path, "base"));
  await writeNew(join(path, "devices"), devices);
  return {
    format: "perdure.template",
    version: 1,
    key,
    ...(build.image === undefined ? {} : { image: build.image }),
    substrate,
    base,
    devices: { digest: hash("sha256", devices) as Digest, bytes: devices.length },
    layer: draft.layer === null ? null : await keepLayer(pool, draft.layer),
    createdAtMs: clock.nowMs(),
  };
}

/** Copied, so that zero pages become holes and no VM process has a descriptor to what is kept. */
async function keepBase(
  pool: WorkPool,
  booted: string,
  path: string,
): Promise<TemplateRecord["base"]> {
  const bytes = (await stat(booted)).size;
  if (bytes === 0) throw new PerdureError("template_failed", "The booted VM left no memory behind");
  const digest = await writeBaseFile(pool, { bytes, basePath: booted }, path, noPages());
  await chmod(path, sharedMode);
  await rm(booted);
  return { digest, bytes };
}

async function keepLayer(
  pool: WorkPool,
  { id, path }: { readonly id: LayerId; readonly path: string },
): Promise<TemplateRecord["layer"]> {
  await syncFile(path);
  const bytes = (await stat(path)).size;
  const digest = await pool.digestFile("layer", path, bytes);
  await chmod(path, sharedMode);
  return { id, digest, bytes };
}
