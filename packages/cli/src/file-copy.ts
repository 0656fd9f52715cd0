/** A file's way between this host and an agent. On this host, too, it is whole or not there. */
import { createWriteStream } from "node:fs";
import { mkdtemp, open, rename, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { PerdureError } from "@perdure/sdk";
import type { ErrorCode, Perdure } from "@perdure/sdk";

export interface CopySettings {
  readonly user?: string;
  readonly mode?: number | undefined;
}

/** Bytes copied. `-` is stdin, which is kept in a file first because its length must be known. */
export async function upload(
  perdure: Perdure,
  localPath: string,
  agent: string,
  path: string,
  { user, mode }: CopySettings,
): Promise<number> {
  if (localPath === "-") {
    const folder = await mkdtemp(join(tmpdir(), "perdure-cp-"));
    try {
      const kept = join(folder, "stdin");
      await pipeline(process.stdin, createWriteStream(kept, { mode: 0o600 }));
      return await upload(perdure, kept, agent, path, { ...withUser(user), mode: mode ?? 0o644 });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
  const file = await open(localPath, "r").catch((error: unknown) => {
    throw localError("read", localPath, error);
  });
  try {
    const facts = await file.stat();
    if (!facts.isFile()) {
      throw new PerdureError("path_not_file", `Cannot read "${localPath}": it is not a file`, {
        hint: "Pack a folder with tar and copy that.",
      });
    }
    await perdure.writeFile(agent, path, file.createReadStream({ autoClose: false }), {
      ...withUser(user),
      mode: mode ?? facts.mode & 0o777,
      size: facts.size,
    });
    return facts.size;
  } finally {
    await file.close();
  }
}

/** Bytes copied. `-` is stdout. */
export async function download(
  perdure: Perdure,
  agent: string,
  path: string,
  localPath: string,
  { user, mode }: CopySettings,
): Promise<number> {
  const { facts, bytes } = await perdure.readFile(agent, path, withUser(user));
  let count = 0;
  const counted = async function* (): AsyncGenerator<Uint8Array> {
    for await (const chunk of bytes) {
      count += chunk.length;
      yield chunk;
    }
  };
  if (localPath === "-") {
    await pipeline(counted, process.stdout, { end: false });
    return count;
  }
  const target = (await isFolder(localPath)) ? join(localPath, basename(path)) : localPath;
  const draft = join(dirname(target), `.${basename(target)}.perdure-${process.pid}`);
  try {
    await pipeline(
      counted,
      createWriteStream(draft, { flags: "wx", mode: mode ?? facts.mode & 0o777 }),
    );
    await rename(draft, target);
  } catch (error) {
    await rm(draft, { force: true });
    throw error instanceof PerdureError ? error : localError("write", target, error);
  }
  return count;
}

function withUser(user: string | undefined): { user?: string } {
  return user === undefined ? {} : { user };
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );
}

const localReasons: Readonly<Record<string, ErrorCode | undefined>> = {
  ENOENT: "path_not_found",
  EACCES: "path_denied",
  EPERM: "path_denied",
  EISDIR: "path_is_directory",
  ENOSPC: "disk_full",
};

function localError(verb: string, path: string, error: unknown): PerdureError {
  const { code = "", message } = error as NodeJS.ErrnoException;
  const reason = localReasons[code] ?? "internal";
  return new PerdureError(reason, `Cannot ${verb} "${path}" on this host: ${message}`, {
    cause: error,
  });
}
