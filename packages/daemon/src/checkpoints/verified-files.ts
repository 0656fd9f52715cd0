/**
 * Which large files (bases, layers) were verified, with the identity that they had and the host boot
 * in which that was. Kept beside them as `verified.json`: a cache, and lost without harm, because
 * what is not in it is verified again.
 *
 * - another identity, or none known: the whole file is verified before it is used;
 * - same identity, another host boot: it may be used, and a check in the background is due;
 * - found damaged: refused until its identity changes.
 */
import { readFile, rename, writeFile } from "node:fs/promises";
import type { Digest } from "@perdure/protocol";
import { z } from "zod";
import { Damage } from "./damage.ts";
import { FILE_MODE, temporaryPath } from "./durable.ts";
import { fileIdentity, sameIdentity } from "./file-identity.ts";
import type { FileIdentity } from "./file-identity.ts";

const recordSchema = z.object({
  digest: z.string(),
  dev: z.string(),
  ino: z.string(),
  size: z.number(),
  mtimeNs: z.string(),
  hostBootId: z.string(),
  damaged: z.boolean(),
});
type VerifiedRecord = z.infer<typeof recordSchema>;
const fileSchema = z.record(z.string(), recordSchema);

export type DigestFile = (
  part: "base" | "layer",
  path: string,
  bytes: number,
  inBackground?: boolean,
) => Promise<Digest>;

export interface LargeFile {
  /** Name in the record: the file's name within its part. */
  readonly name: string;
  readonly part: "base" | "layer";
  readonly path: string;
}

export class VerifiedFiles {
  readonly #path: string;
  readonly #hostBootId: string;
  readonly #digestFile: DigestFile;
  #records: Map<string, VerifiedRecord> | null = null;
  #saving: Promise<void> = Promise.resolve();

  constructor(path: string, hostBootId: string, digestFile: DigestFile) {
    this.#path = path;
    this.#hostBootId = hostBootId;
    this.#digestFile = digestFile;
  }

  /** The file's digest and length; computed only where it is not known for this identity. */
  async digestOf(file: LargeFile): Promise<{ digest: Digest; bytes: number }> {
    const record = (await this.#load()).get(key(file));
    const identity = await fileIdentity(file.path, file.part);
    if (record !== undefined && sameIdentity(record, identity)) {
      if (record.damaged) throw wrong(file);
      return { digest: record.digest as Digest, bytes: identity.size };
    }
    const digest = await this.#hash(file, identity, false);
    await this.#set(file, { digest, ...identity, hostBootId: this.#hostBootId, damaged: false });
    return { digest, bytes: identity.size };
  }

  /**
   * Returns once the file may be used as the one with this digest and length; with a check that is due
   * in the background, where it was not verified since the host booted.
   * @throws Damage
   */
  async verify(
    file: LargeFile,
    expected: { readonly digest: Digest; readonly bytes: number },
  ): Promise<(() => Promise<void>) | null> {
    const records = await this.#load();
    const record = records.get(key(file));
    const identity = await fileIdentity(file.path, file.part);
    if (identity.size !== expected.bytes) {
      throw new Damage(
        file.part,
        "size",
        `its ${file.part} does not have the size that was written`,
      );
    }
    const known = record !== undefined && sameIdentity(record, identity);
    if (known && (record.damaged || record.digest !== expected.digest)) throw wrong(file);
    if (!known) {
      await this.#check(file, expected.digest, false);
      return null;
    }
    if (record.hostBootId === this.#hostBootId) return null;
    return () => this.#check(file, expected.digest, true);
  }

  /** Notes that the file, which nobody else has yet, was just written with this digest. */
  async record(file: LargeFile, digest: Digest): Promise<void> {
    const identity = await fileIdentity(file.path, file.part);
    await this.#set(file, { digest, ...identity, hostBootId: this.#hostBootId, damaged: false });
  }

  /** Forgets files that are gone. */
  async forget(files: readonly Pick<LargeFile, "name" | "part">[]): Promise<void> {
    const records = await this.#load();
    if (files.filter((file) => records.delete(key(file))).length > 0) await this.#save();
  }

  async #check(file: LargeFile, expected: Digest, inBackground: boolean): Promise<void> {
    const identity = await fileIdentity(file.path, file.part);
    const damaged = (await this.#hash(file, identity, inBackground)) !== expected;
    const hostBootId = this.#hostBootId;
    await this.#set(file, { digest: expected, ...identity, hostBootId, damaged });
    if (damaged) throw wrong(file);
  }

  /** The digest of the file while it had this identity. */
  async #hash(file: LargeFile, identity: FileIdentity, inBackground: boolean): Promise<Digest> {
    const digest = await this.#digestFile(file.part, file.path, identity.size, inBackground);
    if (sameIdentity(identity, await fileIdentity(file.path, file.part))) return digest;
    throw new Damage(file.part, "digest", `its ${file.part} changed while it was read`);
  }

  async #set(file: LargeFile, record: VerifiedRecord): Promise<void> {
    (await this.#load()).set(key(file), record);
    await this.#save();
  }

  async #load(): Promise<Map<string, VerifiedRecord>> {
    if (this.#records !== null) return this.#records;
    const text = await readFile(this.#path, "utf8").catch(() => "{}");
    let records = new Map<string, VerifiedRecord>();
    try {
      records = new Map(Object.entries(fileSchema.parse(JSON.parse(text))));
    } catch {
      // Torn by a crash: every file is verified again.
    }
    this.#records ??= records;
    return this.#records;
  }

  /** One at a time; not synced, because losing it costs time only. */
  async #save(): Promise<void> {
    const save = this.#saving.then(async () => {
      const temporary = temporaryPath(this.#path);
      const text = JSON.stringify(Object.fromEntries(this.#records ?? []));
      await writeFile(temporary, text, { mode: FILE_MODE });
      await rename(temporary, this.#path);
    });
    this.#saving = save.catch(() => undefined);
    await save;
  }
}

function key(file: Pick<LargeFile, "name" | "part">): string {
  return `${file.part}/${file.name}`;
}

function wrong(file: LargeFile): Damage {
  return new Damage(
    file.part,
    "digest",
    `its ${file.part} "${file.name}" does not have the digest that was written`,
  );
}
