/**
 * A folder as a tar archive, both ways. What is unpacked comes from a guest: it lands below the folder or
 * nowhere, makes no device and no program that runs as its owner, and leaves no link that leads out.
 */
import { once } from "node:events";
import type { Stats } from "node:fs";
import { chmod, mkdir, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
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
const SET_ID_BITS = 0o7000;
/** What stands for bytes that are no text: names of files that differ look the same with it. */
const NOT_UTF8 = "\ufffd";
/** Zeroes behind the end; tar fills up to 10 KiB, unless it is told otherwise. */
const PADDING_BYTES_MAX = 1024 * 1024;
/** Of the names and targets of all links, which are kept until the end. */
const LINK_BYTES_MAX = 64 * 1024 * 1024;

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
export async function* packFolder(
  folder: string,
  copy: FolderCopy,
): AsyncGenerator<Uint8Array, undefined> {
  const filter = (path: string, facts: Stats | ReadEntry): boolean => {
    if (!("isFile" in facts)) return false;
    // Who unpacks it may be root inside.
    facts.mode &= ~SET_ID_BITS;
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
  const pack = create({ cwd: folder, filter, strict: true, maxReadSize: PIECE_BYTES }, ["."]);
  // More may come behind the first one, when nobody reads any more.
  pack.on("error", () => undefined);
  try {
    yield* pack;
  } catch (error) {
    const { code, path } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT" || path?.includes(NOT_UTF8) !== true) throw error;
    const reason = `the name of "${path}" is not UTF-8`;
    throw new PerdureError("bad_request", `Cannot copy "${folder}": ${reason}`, {
      hint: "Give it another name, or leave it out.",
      cause: error,
    });
  }
}

const notCopied = "it is a device, a pipe or a socket";

/** What is done when all else is unpacked. */
interface Last {
  /** Of the folder itself. */
  mode: number;
  /** Target by path. */
  readonly links: Map<string, string>;
  linkBytes: number;
}

/**
 * Unpacks into `folder`, which is there and empty.
 *
 * Links are made when everything else is there: nothing is ever written through one. Where it fails, some of it may
 * still be on its way to the disk.
 *
 * @param copy told as it goes on
 * @throws `bad_request` for what is no archive or one that would write elsewhere, `too_large` for links without end;
 *   errors of this host's file system
 */
export async function unpackFolder(
  archive: AsyncIterable<Uint8Array>,
  folder: string,
  copy: FolderCopy,
): Promise<void> {
  const failed = new AbortController();
  const fail = (error: unknown): void => failed.abort(error);
  const last: Last = { mode: FOLDER_MODE, links: new Map(), linkBytes: 0 };
  const unpack = new Unpack({
    cwd: folder,
    preserveOwner: false,
    maxDepth: DEPTH_MAX,
    maxMetaEntrySize: META_BYTES_MAX,
    filter: (path, entry) => {
      try {
        return !("type" in entry) || admit(path, entry, copy, last);
      } catch (error) {
        fail(error);
        return false;
      }
    },
    // Of a path that was changed to stay inside, too.
    onwarn: (_code, message, data) => fail(data instanceof Error ? data : new Error(message)),
  });
  let paddingBytes = -1;
  unpack.once("eof", () => (paddingBytes = 0));
  // More may come behind the first one.
  unpack.on("error", fail);
  const finished = once(unpack, "finish", { signal: failed.signal });
  finished.catch(() => undefined);
  try {
    for await (const piece of plain(archive)) {
      if (paddingBytes >= 0) {
        // The library would keep it.
        paddingBytes += piece.length;
        if (paddingBytes > PADDING_BYTES_MAX) throw notAnArchive("it does not end at its end");
      } else if (unpack.write(Buffer.from(piece))) failed.signal.throwIfAborted();
      else await once(unpack, "drain", { signal: failed.signal });
    }
    unpack.end();
    await finished;
    failed.signal.throwIfAborted();
  } catch (error) {
    throw failed.signal.aborted ? failed.signal.reason : error;
  }
  await makeLinks(folder, last);
  await chmod(folder, last.mode);
}

function admit(path: string, entry: ReadEntry, copy: FolderCopy, last: Last): boolean {
  if (`${path}${entry.linkpath ?? ""}`.includes("\0")) throw notAnArchive("a name holds a NUL");
  if (`${path}${entry.linkpath ?? ""}`.includes(NOT_UTF8)) {
    return leaveOut(copy, path, "its name, or where it leads, is not UTF-8");
  }
  const mode = (entry.mode ?? 0o644) & 0o777;
  entry.mode = mode;
  switch (entry.type) {
    case "File":
    case "OldFile":
    case "ContiguousFile":
      copy.files++;
      copy.bytes += entry.size;
      return true;
    case "Directory":
      if (path === "./") last.mode = mode | FOLDER_MODE;
      return true;
    case "Link": {
      const target = last.links.get(normal(entry.linkpath ?? ""));
      if (target === undefined) return true;
      // Another name of a link: a link like it.
      keepLink(path, target, copy, last);
      return false;
    }
    case "SymbolicLink":
      keepLink(path, entry.linkpath ?? "", copy, last);
      return false;
    default:
      return leaveOut(copy, path, notCopied);
  }
}

function keepLink(path: string, target: string, copy: FolderCopy, last: Last): void {
  if (path.startsWith("/") || partsOf(path).includes("..")) {
    throw notAnArchive("it would write outside of its folder");
  }
  if (!staysInside(path, target)) {
    leaveOut(copy, path, "the link leads out of the folder");
    return;
  }
  last.linkBytes += path.length + target.length;
  if (last.linkBytes > LINK_BYTES_MAX) {
    throw new PerdureError("too_large", "The folder has more links than can be copied");
  }
  last.links.set(normal(path), target);
}

/** Folders first: while there is no link, a path leads where it says. */
async function makeLinks(folder: string, { links }: Last): Promise<void> {
  for (const path of links.keys()) await mkdir(dirname(join(folder, path)), { recursive: true });
  for (const [path, target] of links) await symlink(target, join(folder, path));
}

/**
 * Whether a link at `path` ends below the folder, whatever the other links in it are. `..` may only lead the
 * target: behind a name it could follow another link first.
 */
export function staysInside(path: string, target: string): boolean {
  if (target.startsWith("/")) return false;
  const steps = partsOf(target);
  const up = steps.findIndex((step) => step !== "..");
  const ups = up === -1 ? steps.length : up;
  return ups <= partsOf(dirname(path)).length && !steps.slice(ups).includes("..");
}

function normal(path: string): string {
  return partsOf(path).join("/");
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
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
    if (head.toString("latin1", 0, 2) !== "./") throw notAnArchive("it does not begin as one");
    yield head;
    head = null;
  }
  if (head !== null) throw notAnArchive("it is empty");
}

function notAnArchive(reason: string): PerdureError {
  return new PerdureError("guest_error", `What came out of the agent is no tar archive: ${reason}`);
}
