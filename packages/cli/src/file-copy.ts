/** A file's way between this host and an agent. On this host, too, it is whole or not there. */
import { constants, createWriteStream } from "node:fs";
import { mkdtemp, open, realpath, rename, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { PerdureError } from "@perdure/sdk";
import type { Perdure } from "@perdure/sdk";
import { localError } from "@perdure/sdk/local-error";
import { counted } from "./passing-bytes.ts";

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
  // Without blocking: to open a pipe that nobody writes would wait for ever.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK;
  const file = await open(localPath, flags).catch((error: unknown) => {
    throw localError(`read "${localPath}" on this host`, error);
  });
  try {
    const facts = await file.stat();
    if (!facts.isFile()) {
      const hint = facts.isDirectory()
        ? `Copy it with all that is in it: perdure cp --recursive "${localPath}" ${agent}:${path}`
        : `Pipe it in: perdure cp - ${agent}:${path} < "${localPath}"`;
      throw new PerdureError("path_not_file", `Cannot read "${localPath}": it is not a file`, {
        hint,
      });
    }
    const bytes = file.createReadStream({ autoClose: false });
    const settings = { ...withUser(user), mode: mode ?? facts.mode & 0o777, size: facts.size };
    await perdure
      .writeFile(agent, path, bytes, settings)
      .catch(
        explained(
          `write "${path}" in agent "${agent}"`,
          `Name the file in it, as in "${join(path, "NAME")}".`,
        ),
      );
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
  const { facts, bytes } = await perdure
    .readFile(agent, path, withUser(user))
    .catch(
      explained(
        `read "${path}" in agent "${agent}"`,
        `Copy it with all that is in it: perdure cp --recursive ${agent}:${path} ${localPath === "-" ? "FOLDER" : localPath}`,
      ),
    );
  let count = 0;
  const passing = (): AsyncIterable<Uint8Array> => counted(bytes, (soFar) => (count = soFar));
  if (localPath === "-") {
    await pipeline(passing, process.stdout, { end: false });
    return count;
  }
  const target = (await isFolder(localPath)) ? join(localPath, basename(path)) : localPath;
  try {
    await save(passing, target, mode ?? facts.mode & 0o777);
  } catch (error) {
    throw localError(`write "${target}" on this host`, error);
  }
  return count;
}

/** A file appears whole, where a link leads to; a device or a pipe is written to and stays what it is. */
export async function save(
  bytes: () => AsyncIterable<Uint8Array>,
  path: string,
  mode: number,
): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  if (found !== undefined && !found.isFile()) {
    await pipeline(bytes, createWriteStream(path));
    return;
  }
  const target = found === undefined ? path : await realpath(path);
  const draft = join(dirname(target), `.${basename(target)}.perdure-${process.pid}`);
  try {
    await pipeline(bytes, createWriteStream(draft, { flags: "wx", mode, flush: true }));
    await rename(draft, target);
  } catch (error) {
    await rm(draft, { force: true }).catch(() => undefined);
    throw error;
  }
}

/** Rethrows; says more where the path in the agent is a folder, or a device or a pipe. */
function explained(action: string, folderHint: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof PerdureError)) throw error;
    const { code, details, cause } = error;
    if (code === "path_is_directory") {
      throw new PerdureError(code, error.message, { details, cause, hint: folderHint });
    }
    if (code !== "path_not_file") throw error;
    const reason = "it is not a regular file, and only those can be copied";
    throw new PerdureError(code, `Cannot ${action}: ${reason}`, {
      details,
      cause,
      hint: "A device or a pipe is read and written by a program inside: `perdure exec --help`.",
    });
  };
}

function withUser(user: string | undefined): { user?: string } {
  return user === undefined ? {} : { user };
}

/** Whether a path on this host leads to a folder. */
export async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );
}
