/**
 * A folder as a tar archive, both ways. What is unpacked comes from a guest: it lands below the folder or
 * nowhere, makes no device and no program that runs as its owner, and leaves no link that leads out.
 */
import { once } from "node:events";
import type { Stats } from "node:fs";
import { dirname } from "node:path";
import { PerdureError } from "@perdure/sdk";
import { create, Unpack } from "tar";
import type { ReadEntry } from "tar";

/** How many of those left out are named. */
const NAMED_MAX = 20;
const PIECE_BYTES = 1024 * 1024;
/** Of names and targets in an archive, bytes. */
const META_BYTES_MAX = 64 * 1024;
const DEPTH_MAX = 256;
/** Of a copied folder, at least: its owner's. */
const FOLDER_MODE = 0o700;

/** What was copied so far. */
export interface FolderCopy {
  files: number;
  /** Of the files. */
  bytes: number;
  readonly leftOut: { count: number; readonly named: { path: string; reason: string }[] };
}

export function emptyFolderCopy(): FolderCopy {
  return { files: 0, bytes: 0, leftOut: { count: 0, named: [] } };
}

function leaveOut({ leftOut }: FolderCopy, path: string, reason: string): false {
  leftOut.count++;
  if (leftOut.named.length < NAMED_MAX) leftOut.named.push({ path, reason });
  return false;
}

/** All of `folder`, whose folders are their owner's to write in, named from `.` on. Links are packed as links. */
export function packFolder(folder: string, copy: FolderCopy): AsyncIterable<Uint8Array> {
  const filter = (path: string, facts: Stats | ReadEntry): boolean => {
    if (!("isFile" in facts)) return false;
    if (facts.isFile()) {
      copy.files++;
      copy.bytes += facts.size;
      return true;
    }
    // So that what is in it can be written, in whatever order it comes.
    if (facts.isDirectory()) facts.mode |= FOLDER_MODE;
    if (facts.isDirectory() || facts.isSymbolicLink()) return true;
    return leaveOut(copy, path, notCopied);
  };
  return create({ cwd: folder, filter, strict: true, maxReadSize: PIECE_BYTES }, ["."]);
}

const notCopied = "it is a device, a pipe or a socket";

/**
 * Unpacks into `folder`, which is there and empty.
 *
 * Where it fails, some of it may still be on its way to the disk.
 *
 * @param copy told as it goes on
 * @throws `bad_request` for what is no archive or one that would write elsewhere; errors of this host's file system
 */
export async function unpackFolder(
  archive: AsyncIterable<Uint8Array>,
  folder: string,
  copy: FolderCopy,
): Promise<void> {
  const failed = new AbortController();
  const fail = (error: unknown): void => failed.abort(error);
  const unpack = new Unpack({
    cwd: folder,
    preserveOwner: false,
    maxDepth: DEPTH_MAX,
    maxMetaEntrySize: META_BYTES_MAX,
    filter: (path, entry) => !("type" in entry) || admit(path, entry, copy),
    onwarn: (code, message, data) => {
      if (code !== "TAR_ENTRY_INFO") fail(data instanceof Error ? data : new Error(message));
    },
  });
  // More may come behind the first one.
  unpack.on("error", fail);
  const finished = once(unpack, "finish", { signal: failed.signal });
  finished.catch(() => undefined);
  try {
    for await (const piece of plain(archive)) {
      if (unpack.write(Buffer.from(piece))) failed.signal.throwIfAborted();
      else await once(unpack, "drain", { signal: failed.signal });
    }
    unpack.end();
    await finished;
    failed.signal.throwIfAborted();
  } catch (error) {
    throw failed.signal.aborted ? failed.signal.reason : error;
  }
}

function admit(path: string, entry: ReadEntry, copy: FolderCopy): boolean {
  switch (entry.type) {
    case "File":
    case "OldFile":
    case "ContiguousFile":
      copy.files++;
      copy.bytes += entry.size;
      break;
    case "Directory":
    case "Link":
      break;
    case "SymbolicLink":
      if (!staysInside(path, entry.linkpath ?? "")) {
        return leaveOut(copy, path, "the link leads out of the folder");
      }
      break;
    default:
      return leaveOut(copy, path, notCopied);
  }
  entry.mode = (entry.mode ?? 0o644) & 0o777;
  return true;
}

/**
 * Whether a link at `path` ends below the folder, whatever the other links in it are. `..` may only lead the
 * target: behind a name it could follow another link first.
 */
function staysInside(path: string, target: string): boolean {
  if (target.startsWith("/")) return false;
  const parts = (text: string): string[] =>
    text.split("/").filter((part) => part !== "" && part !== ".");
  const steps = parts(target);
  const up = steps.findIndex((step) => step !== "..");
  const ups = up === -1 ? steps.length : up;
  return ups <= parts(dirname(path)).length && !steps.slice(ups).includes("..");
}

/** The archive as it is: the library would unpack a compressed one, too, and that has no bound. */
async function* plain(archive: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let head: Buffer | null = Buffer.alloc(0);
  for await (const piece of archive) {
    if (head === null) {
      yield piece;
      continue;
    }
    head = Buffer.concat([head, piece]);
    if (head.length < 2) continue;
    if (head.toString("latin1", 0, 2) !== "./") throw notAnArchive();
    yield head;
    head = null;
  }
  if (head !== null) throw notAnArchive();
}

function notAnArchive(): PerdureError {
  return new PerdureError("bad_request", "What came out of the agent is no tar archive");
}
