/**
 * Template store in folders of the local file system: implements `TemplateStore`.
 *
 * `<images>/templates/<key>` is built once and shared by data directories; each tenant of a data
 * directory takes it over into a folder of its own (`tenant-template.ts`). Both under a lock that ends
 * with its process, so two daemons, or a daemon and a tool, are safe together.
 */
import { mkdir, readFile, readdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { PerdureError, digestSchema } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { Template, TemplateStore } from "../../core/ports/template-store.ts";
import { withFileLock } from "../../file-lock.ts";
import { Damage } from "../damage.ts";
import { FOLDER_MODE, temporaryPath } from "../durable.ts";
import type { KeyRing } from "../key-ring.ts";
import { storeError } from "../store-error.ts";
import { VerifiedFiles } from "../verified-files.ts";
import { WorkPool } from "../work/pool.ts";
import { BackgroundChecks } from "./background-check.ts";
import type { DamageReport, VerifyInBackground } from "./background-check.ts";
import { buildTemplate } from "./build-template.ts";
import { EmptyLayers } from "./empty-layer.ts";
import { readHostBootId } from "./host-boot.ts";
import { decodeSignedRecord, templatesOf } from "./template-record.ts";
import type { TemplateRecord } from "./template-record.ts";
import { baseFile, layerFile, readDevices, takeOver } from "./tenant-template.ts";

export interface LocalTemplateStoreOptions {
  readonly home: string;
  /** Images folder; templates are built in `templates` inside. */
  readonly images: string;
  /** A base per tenant: needed where the VMM must have a writable descriptor for it. */
  readonly tenantCopies: boolean;
  readonly keyRing: KeyRing;
  readonly clock: Clock;
  readonly pool?: WorkPool;
  readonly verifyInBackground?: VerifyInBackground;
  readonly onDamage?: (report: DamageReport) => void;
  readonly hostBootId?: string;
  readonly qemuImg?: string;
}

export async function openLocalTemplateStore(
  options: LocalTemplateStoreOptions,
): Promise<LocalTemplateStore> {
  await mkdir(join(options.images, "templates"), { recursive: true });
  return new LocalTemplateStore(options, options.hostBootId ?? (await readHostBootId()));
}

export class LocalTemplateStore implements TemplateStore {
  readonly #options: LocalTemplateStoreOptions;
  readonly #hostBootId: string;
  readonly #pool: WorkPool;
  readonly #ownsPool: boolean;
  readonly #checks: BackgroundChecks;
  readonly #emptyLayers: EmptyLayers;
  readonly #verified = new Map<string, VerifiedFiles>();
  /** Folder of the template that has this base, by tenant and digest. */
  readonly #bases = new Map<string, string>();

  constructor(options: LocalTemplateStoreOptions, hostBootId: string) {
    this.#options = options;
    this.#hostBootId = hostBootId;
    this.#ownsPool = options.pool === undefined;
    this.#pool = options.pool ?? new WorkPool();
    this.#checks = new BackgroundChecks(options.verifyInBackground, options.onDamage);
    this.#emptyLayers = new EmptyLayers(options.home, options.qemuImg);
  }

  async open(tenant: string, key: Digest): Promise<Template | null> {
    const path = join(this.#tenantFolder(tenant), key);
    try {
      if (!(await exists(join(path, "record.json"))) && !(await this.#takeOver(tenant, key))) {
        return null;
      }
      const record = await this.#record(path);
      if (record.key !== key) throw new Error("A template lies under another key");
      const basePath = await this.#verifiedBase(path, record);
      const layerPath = join(path, "layer.qcow2");
      if (record.layer !== null) await this.#verify(path, layerFile(layerPath), record.layer);
      return {
        key,
        substrate: record.substrate,
        base: { kind: "template", digest: record.base.digest, path: basePath },
        devices: await readDevices(join(path, "devices"), record.devices),
        layer:
          record.layer === null
            ? null
            : { id: record.layer.id, digest: record.layer.digest, path: layerPath },
        createdAtMs: record.createdAtMs,
      };
    } catch (error) {
      throw storeError(error, `open template "${key}"`);
    }
  }

  async build(
    key: Digest,
    diskBytes: number | null,
    boot: Parameters<TemplateStore["build"]>[2],
    image?: Digest,
  ): Promise<void> {
    const { clock } = this.#options;
    const path = this.#sharedFolder(key);
    const lock = join(this.#options.images, "templates", `.${key}.lock`);
    try {
      await withFileLock(lock, async () => {
        if (await exists(join(path, "template.json"))) return;
        const parts = { pool: this.#pool, clock, emptyLayers: this.#emptyLayers };
        await buildTemplate(path, { key, image, diskBytes, boot, ...parts });
      });
    } catch (error) {
      const told = storeError(error, `build template "${key}"`);
      throw told.code === "internal"
        ? new PerdureError("template_failed", told.message, { cause: error })
        : told;
    }
  }

  /** Path of the base with this digest among the tenant's templates, verified like `open` does. */
  async findBase(tenant: string, digest: Digest): Promise<string | null> {
    const folder = this.#tenantFolder(tenant);
    const known = this.#bases.get(`${tenant}/${digest}`);
    const names = known === undefined ? await readdir(folder).catch(() => []) : [known];
    for (const name of names) {
      const path = join(folder, name);
      if (!digestSchema.safeParse(name).success || !(await exists(join(path, "record.json")))) {
        continue;
      }
      const record = await this.#record(path);
      if (record.base.digest !== digest) continue;
      this.#bases.set(`${tenant}/${digest}`, name);
      return await this.#verifiedBase(path, record);
    }
    return null;
  }

  async forget(image: Digest): Promise<readonly Digest[]> {
    const forgotten: Digest[] = [];
    try {
      const tenants = join(this.#options.home, "tenants");
      for (const tenant of await readdir(tenants).catch((): string[] => [])) {
        const folder = join(tenants, tenant, "templates");
        for (const record of await templatesOf(folder, "record.json", image)) {
          await withFileLock(join(folder, ".lock"), () => removeFolder(join(folder, record.key)));
          this.#verified.delete(join(folder, record.key));
          this.#bases.delete(`${tenant}/${record.base.digest}`);
          forgotten.push(record.base.digest);
        }
      }
      const shared = join(this.#options.images, "templates");
      for (const record of await templatesOf(shared, "template.json", image)) {
        await this.#discard(record.key);
        forgotten.push(record.base.digest);
      }
    } catch (error) {
      throw storeError(error, `forget the templates of image "${image}"`);
    }
    return forgotten;
  }

  async close(): Promise<void> {
    this.#checks.close();
    if (this.#ownsPool) await this.#pool.close();
  }

  /**
   * Takes the shared template over for the tenant; false where it was never built. One that was damaged
   * is discarded: nothing stands on it but what was taken over before, and it can be built again.
   */
  async #takeOver(tenant: string, key: Digest): Promise<boolean> {
    const from = this.#sharedFolder(key);
    if (!(await exists(join(from, "template.json")))) return false;
    const folder = this.#tenantFolder(tenant);
    await mkdir(folder, { recursive: true, mode: FOLDER_MODE });
    await withFileLock(join(folder, ".lock"), async () => {
      if (await exists(join(folder, key, "record.json"))) return;
      await takeOver(from, join(folder, key), {
        pool: this.#pool,
        signing: this.#options.keyRing.signing,
        hostBootId: this.#hostBootId,
        copyBase: this.#options.tenantCopies,
      });
    }).catch(async (error: unknown) => {
      if (!(error instanceof Damage)) throw error;
      this.#options.onDamage?.({ owner: key, path: from, damage: error });
      await this.#discard(key);
    });
    return exists(join(folder, key, "record.json"));
  }

  async #discard(key: Digest): Promise<void> {
    const path = this.#sharedFolder(key);
    const lock = join(this.#options.images, "templates", `.${key}.lock`);
    await withFileLock(lock, () => removeFolder(path));
  }

  async #record(path: string): Promise<TemplateRecord> {
    const text = await readFile(join(path, "record.json"), "utf8");
    return decodeSignedRecord(this.#options.keyRing.signing, text);
  }

  async #verifiedBase(path: string, record: TemplateRecord): Promise<string> {
    const file = baseFile(join(path, "base"));
    await this.#verify(path, file, record.base);
    return file.path;
  }

  async #verify(
    folder: string,
    file: ReturnType<typeof baseFile> | ReturnType<typeof layerFile>,
    expected: { readonly digest: Digest; readonly bytes: number },
  ): Promise<void> {
    let verified = this.#verified.get(folder);
    if (verified === undefined) {
      verified = new VerifiedFiles(join(folder, "verified.json"), this.#hostBootId, (...file) =>
        this.#pool.digestFile(...file),
      );
      this.#verified.set(folder, verified);
    }
    const check = await verified.verify(file, expected);
    if (check !== null) this.#checks.add(folder, file.path, check);
  }

  #sharedFolder(key: Digest): string {
    return join(this.#options.images, "templates", digestSchema.parse(key));
  }

  #tenantFolder(tenant: string): string {
    if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(tenant)) {
      throw new PerdureError("bad_request", `A tenant cannot be called "${tenant}"`);
    }
    return join(this.#options.home, "tenants", tenant, "templates");
  }
}

/** Gone at once, then freed: one that is half there is none. */
async function removeFolder(path: string): Promise<void> {
  const gone = temporaryPath(path);
  await rename(path, gone).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  });
  await rm(gone, { recursive: true, force: true });
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null)) !== null;
}
