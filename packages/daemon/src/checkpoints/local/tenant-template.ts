/**
 * A template in a tenant's folder: complete, so that it goes on existing, with the agents that stand
 * on it, when the images folder is emptied or built anew.
 *
 *   <home>/tenants/<tenant>/templates/<key>/
 *     record.json      signed with the host's key
 *     base             a copy where VMs need a writable descriptor, else a second name of the shared file
 *     layer.qcow2      a copy: it is small
 *     devices, verified.json
 *
 * Everything is verified while it is taken over.
 */
import { hash } from "node:crypto";
import { link, mkdir, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Digest } from "@perdure/protocol";
import { Damage } from "../damage.ts";
import { FOLDER_MODE, isTemporary, syncFolder, temporaryPath, writeNew } from "../durable.ts";
import type { SigningKey } from "../signature.ts";
import { diskFull, isDiskFull } from "../store-error.ts";
import { VerifiedFiles } from "../verified-files.ts";
import type { WorkPool } from "../work/pool.ts";
import { copyLayer } from "./layer.ts";
import { noPages, writeBaseFile } from "./own-base.ts";
import { decodeRecord, encodeSignedRecord } from "./template-record.ts";
import type { TemplateRecord } from "./template-record.ts";

/** Device state is at most this long. */
const devicesBytesMax = 16 * 1024 * 1024;

export interface Takeover {
  readonly pool: WorkPool;
  readonly signing: SigningKey;
  readonly hostBootId: string;
  /** Whether the tenant needs a base file that no other tenant maps. */
  readonly copyBase: boolean;
}

/** Takes the shared template at `from` over to `path`, which does not exist. @throws Damage */
export async function takeOver(from: string, path: string, takeover: Takeover): Promise<void> {
  const folder = dirname(path);
  for (const name of await readdir(folder)) {
    if (isTemporary(name) && name !== ".lock") {
      await rm(join(folder, name), { recursive: true, force: true });
    }
  }
  const record = decodeRecord(await readFile(join(from, "template.json"), "utf8"));
  const draft = temporaryPath(path);
  await mkdir(draft, { mode: FOLDER_MODE });
  try {
    const base = await takeBase(join(from, "base"), join(draft, "base"), record.base, takeover);
    const layer = await takeLayer(
      join(from, "layer.qcow2"),
      join(draft, "layer.qcow2"),
      record,
      takeover,
    );
    const devices = await readDevices(join(from, "devices"), record.devices);
    await writeNew(join(draft, "devices"), devices);
    await writeNew(join(draft, "record.json"), encodeSignedRecord(takeover.signing, record));
    const verified = new VerifiedFiles(
      join(draft, "verified.json"),
      takeover.hostBootId,
      (...file) => takeover.pool.digestFile(...file),
    );
    await verified.record(base, record.base.digest);
    if (layer !== null) await verified.record(layer, record.layer?.digest ?? record.base.digest);
    await syncFolder(draft);
    await rename(draft, path);
    await syncFolder(folder);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    if (!isDiskFull(error)) throw error;
    const needBytes = (await stat(join(from, "base"))).blocks * 512 + devicesBytesMax;
    throw await diskFull(folder, `take over template "${record.key}"`, needBytes);
  }
}

async function takeBase(
  from: string,
  path: string,
  expected: TemplateRecord["base"],
  { pool, copyBase }: Takeover,
): Promise<ReturnType<typeof baseFile>> {
  const linked = !copyBase && (await link(from, path).then(() => true, isOtherFileSystem));
  const digest = linked
    ? await pool.digestFile("base", path, expected.bytes)
    : await writeBaseFile(pool, { bytes: expected.bytes, basePath: from }, path, noPages());
  if (digest !== expected.digest) throw changed("base");
  return baseFile(path);
}

/** False where a copy has to do. */
function isOtherFileSystem(error: unknown): false {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== "EXDEV" && code !== "EMLINK" && code !== "EPERM") throw error;
  return false;
}

async function takeLayer(
  from: string,
  path: string,
  { layer }: TemplateRecord,
  { pool }: Takeover,
): Promise<ReturnType<typeof layerFile> | null> {
  if (layer === null) return null;
  // A copy: a file with a name in two data directories would spread damage from one to the other.
  await copyLayer(from, path);
  if ((await pool.digestFile("layer", path, layer.bytes)) !== layer.digest) throw changed("layer");
  return layerFile(path);
}

/** @throws Damage */
export async function readDevices(
  path: string,
  expected: { readonly digest: Digest; readonly bytes: number },
): Promise<Uint8Array<ArrayBuffer>> {
  const devices = await readFile(path);
  if (devices.length !== expected.bytes || hash("sha256", devices) !== expected.digest) {
    throw changed("devices");
  }
  return new Uint8Array(devices);
}

export function baseFile(path: string): { part: "base"; name: string; path: string } {
  return { part: "base", name: "base", path };
}

export function layerFile(path: string): { part: "layer"; name: string; path: string } {
  return { part: "layer", name: "layer.qcow2", path };
}

function changed(part: "base" | "layer" | "devices"): Damage {
  return new Damage(part, "digest", `its ${part} does not have the digest that was written`);
}
