/** Files of a sandbox as bytes, up and down, over plain HTTP. Memory is bounded, however large a file is. */
import type { IncomingMessage } from "node:http";
import { posix } from "node:path";
import { Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { apiLimits, PerdureError } from "@perdure/protocol";
import type { Target } from "../../core/command.ts";
import type { FileFacts } from "../../core/ports/guest-link.ts";
import { Upload } from "../upload.ts";
import type { Account, Accounts } from "./account.ts";
import type { E2bContext } from "./e2b-context.ts";
import { eachFile } from "./form-data.ts";
import { absolutePath, asUserOrRoot, giveTo, isRefused, throughLinks } from "./inside-path.ts";
import { attributesOf, metadataIn } from "./metadata.ts";
import type { Metadata } from "./metadata.ts";
import { Replay } from "./replay.ts";
import { Spool, tooLarge } from "./spool.ts";
import type { Spooled } from "./spool.ts";

const MODE_NEW = 0o644;

interface Beginnable {
  readonly canBegin: boolean;
  bytes(): AsyncIterable<Uint8Array>;
}

export interface Written {
  readonly name: string;
  readonly type: "file";
  readonly path: string;
  readonly metadata?: Metadata;
}

interface Whole {
  readonly size: number;
  readonly bytes: Beginnable;
  readonly metadata: Metadata;
}

export class FileTransfer {
  readonly #context: E2bContext;
  readonly #accounts: Accounts;

  constructor(context: E2bContext, accounts: Accounts) {
    this.#context = context;
    this.#accounts = accounts;
  }

  /** Exactly the bytes that the file has when it is opened, unless it shrinks: then they end with an error. */
  async read(target: Target, user: string | null, sent: string) {
    const { commands } = this.#context;
    const account = await this.#accounts.account(target, user);
    const path = absolutePath(sent, account);
    const { value } = await asUserOrRoot(account, (name) =>
      throughLinks(commands, target, path, "followed", (found) =>
        commands.readFile({ ...target, path: found, user: name }),
      ),
    );
    const { size } = value.facts;
    return { name: posix.basename(path), size, bytes: exactly(size, value.bytes) };
  }

  /** @param sent of a form: the path of its one file; empty: each is called by its path */
  async write(
    target: Target,
    user: string | null,
    sent: string,
    request: IncomingMessage,
  ): Promise<Written[]> {
    const metadata = metadataIn(request.headers);
    const account = await this.#accounts.account(target, user);
    if (/^multipart\/form-data\b/i.test(request.headers["content-type"] ?? "")) {
      return this.#writeForm(target, account, sent, { request, metadata });
    }
    const path = absolutePath(sent, account);
    const size = lengthOf(request);
    const upload = decoded(request);
    if (size === null) {
      return [await this.#writeSpooled(target, account, path, { upload, metadata })];
    }
    const bytes = new Replay(upload);
    try {
      return [await this.#writeWhole(target, account, path, { size, bytes, metadata })];
    } finally {
      await bytes.end();
    }
  }

  async #writeForm(
    target: Target,
    account: Account,
    sent: string,
    { request, metadata }: { readonly request: IncomingMessage; readonly metadata: Metadata },
  ): Promise<Written[]> {
    await using spool = await this.#spool();
    const found: { readonly path: string; readonly file: Spooled }[] = [];
    // None is written before all of the form is there.
    await eachFile(request, async (name, bytes) => {
      if (sent !== "" && found.length > 0) {
        throw new PerdureError("bad_request", "Cannot write several files to one path");
      }
      const path = absolutePath(sent === "" ? name : sent, account);
      found.push({ path, file: await spool.take(bytes) });
    });
    if (found.length === 0) {
      throw new PerdureError("bad_request", "Cannot write: the form has no file");
    }
    const written: Written[] = [];
    for (const { path, file } of found) {
      written.push(await this.#writeWhole(target, account, path, { ...again(file), metadata }));
    }
    return written;
  }

  async #writeSpooled(
    target: Target,
    account: Account,
    path: string,
    {
      upload,
      metadata,
    }: { readonly upload: AsyncIterable<Uint8Array>; readonly metadata: Metadata },
  ): Promise<Written> {
    await using spool = await this.#spool();
    const file = again(await spool.take(upload));
    return await this.#writeWhole(target, account, path, { ...file, metadata });
  }

  #spool(): Promise<Spool> {
    const { spoolDir, clock } = this.#context;
    return Spool.open(spoolDir, Buffer.from(clock.randomBytes(16)).toString("hex"));
  }

  async #writeWhole(
    target: Target,
    account: Account,
    path: string,
    { size, bytes, metadata }: Whole,
  ): Promise<Written> {
    const { commands } = this.#context;
    const { place, facts } = await this.#place(target, account, path);
    if (facts?.kind === "directory") {
      throw new PerdureError("path_is_directory", `Cannot write "${path}": it is a directory`);
    }
    const mode = facts === null ? MODE_NEW : facts.mode & 0o7777;
    const attributes = attributesOf(metadata);
    const { isRoot } = await asUserOrRoot(account, async (user) => {
      try {
        const file = { ...target, path: place, user, mode, size, attributes };
        await commands.writeFile(file, bytes.bytes());
      } catch (error) {
        if (bytes.canBegin || !isRefused(error, "path_denied")) throw error;
        throw new PerdureError("cancelled", "The file is gone: it was refused too late", {
          cause: error,
        });
      }
    });
    if (isRoot) await giveTo(commands, target, account, place);
    const has = Object.keys(metadata).length > 0;
    return { name: posix.basename(path), type: "file", path, ...(has ? { metadata } : {}) };
  }

  /** Where the path leads, and what stands there; folders on the way are made. */
  async #place(
    target: Target,
    account: Account,
    path: string,
  ): Promise<{ readonly place: string; readonly facts: FileFacts | null }> {
    const { commands } = this.#context;
    const look = async (found: string) => {
      const { value } = await asUserOrRoot(account, (user) =>
        commands.stat({ ...target, path: found, user }),
      );
      if (value.kind === "link") throw isLink();
      return { place: found, facts: value };
    };
    try {
      return await throughLinks(commands, target, path, "followed", look);
    } catch (error) {
      if (!isRefused(error, "path_not_found")) throw error;
    }
    return throughLinks(commands, target, path, "followed", async (found) => {
      await this.#makeParent(target, account, posix.dirname(found));
      return { place: found, facts: null };
    });
  }

  async #makeParent(target: Target, account: Account, path: string): Promise<void> {
    const { commands } = this.#context;
    const { isRoot } = await asUserOrRoot(account, async (user) => {
      try {
        const { kind } = await commands.stat({ ...target, path, user });
        if (kind === "link") throw isLink();
      } catch (error) {
        if (!isRefused(error, "path_not_found")) throw error;
        const folder = { ...target, path, user, mode: 0o755, parents: true };
        await commands.execute({ kind: "makeFolder", ...folder });
        return true;
      }
      return false;
    }).then(({ value, isRoot: byRoot }) => ({ isRoot: value && byRoot }));
    if (isRoot) await giveTo(commands, target, account, path);
  }
}

/** For `throughLinks`: the path is to be followed. */
function isLink(): PerdureError {
  return new PerdureError("path_is_link", "A symbolic link stands in the path");
}

/** As often as it takes. */
function again(file: Spooled): { readonly size: number; readonly bytes: Beginnable } {
  return { size: file.size, bytes: { bytes: () => file.bytes(), canBegin: true } };
}

/** As it is on the wire, or unpacked. @throws `bad_request` */
function decoded(request: IncomingMessage): AsyncIterable<Uint8Array> {
  const encoding = request.headers["content-encoding"] ?? "identity";
  const upload = new Upload(request);
  if (encoding === "identity") return upload;
  if (encoding !== "gzip") {
    throw new PerdureError("bad_request", `Cannot read content-encoding "${encoding}": only gzip`);
  }
  return unpacked(upload);
}

async function* unpacked(upload: Upload): AsyncGenerator<Uint8Array> {
  const packed = Readable.from(upload, { objectMode: false });
  const plain = createGunzip();
  packed.once("error", (error) => plain.destroy(error));
  try {
    for await (const chunk of packed.pipe(plain)) yield chunk as Uint8Array;
  } catch (error) {
    if (error instanceof PerdureError) throw error;
    throw new PerdureError("bad_request", "Cannot unpack the body: it is not gzip");
  } finally {
    packed.destroy();
  }
}

/** Null where it is not known before the end. */
function lengthOf({ headers }: IncomingMessage): number | null {
  const length = headers["content-length"];
  if (length === undefined || headers["content-encoding"] !== undefined) return null;
  const size = Number(length);
  if (size > apiLimits.fileBytesMax) throw tooLarge();
  return size;
}

async function* exactly(
  size: number,
  bytes: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  let left = size;
  for await (const chunk of bytes) {
    if (left === 0) return;
    const piece = chunk.subarray(0, left);
    left -= piece.length;
    yield piece;
    if (left === 0) return;
  }
  if (left > 0) throw new PerdureError("size_mismatch", "The file became shorter meanwhile");
}
