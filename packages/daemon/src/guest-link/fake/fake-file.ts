/** The fake guest's file system: a few folders, two users, modes, links that are never followed. */
import { status } from "../operation.ts";

export interface FakeFile {
  readonly kind: "file" | "directory" | "link";
  readonly mode: number;
  readonly uid: number;
  readonly mtimeMs: number;
  /** Content as base64, or where a link leads: plain data, so that it can be saved. */
  readonly content: string;
  readonly attributes?: Readonly<Record<string, string>>;
}

/** Thrown by what an operation calls; becomes its answer. */
export class FakeFailure extends Error {
  readonly status: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.status = statusCode;
  }
}

const users: ReadonlyMap<string, number> = new Map([
  ["root", 0],
  ["user", 1000],
]);

export function uidOf(user: string): number {
  const uid = users.get(user);
  if (uid === undefined) throw new FakeFailure(status.userNotFound, `There is no user ${user}`);
  return uid;
}

export function initialFiles(nowMs: number): Record<string, FakeFile> {
  const folder = (mode: number, uid: number): FakeFile => ({
    kind: "directory",
    mode,
    uid,
    mtimeMs: nowMs,
    content: "",
  });
  return {
    "/": folder(0o755, 0),
    "/bin": folder(0o755, 0),
    "/etc": folder(0o755, 0),
    "/root": folder(0o700, 0),
    "/tmp": folder(0o1777, 0),
    "/home": folder(0o755, 0),
    "/home/user": folder(0o755, 1000),
  };
}

export interface FakeWrite {
  readonly mode: number;
  readonly bytes: Uint8Array;
  readonly attributes: Readonly<Record<string, string>>;
}

export interface FakeChange {
  readonly type: "created" | "changed" | "removed" | "moved" | "attributes";
  readonly path: string;
  readonly from?: string;
}

export class FakeFiles {
  /** Told of each change, after it. */
  readonly watchers = new Set<(change: FakeChange) => void>();
  readonly #files: Record<string, FakeFile>;

  /** Works on `files` itself. */
  constructor(files: Record<string, FakeFile>) {
    this.#files = files;
  }

  /** A link as the last component is described, one before it refused. */
  stat(path: string, uid: number): FakeFile {
    this.#walk(path, uid);
    const file = this.#files[path];
    if (file === undefined) throw new FakeFailure(status.pathNotFound, `${path} does not exist`);
    return file;
  }

  read(path: string, uid: number): { readonly file: FakeFile; readonly bytes: Buffer } {
    const file = this.stat(path, uid);
    if (file.kind === "link") throw isLink(path, file);
    if (file.kind === "directory") throw new FakeFailure(status.pathIsDirectory, `${path} is one`);
    if (!may(file, uid, 4)) throw new FakeFailure(status.pathDenied, `${path} is not readable`);
    return { file, bytes: Buffer.from(file.content, "base64") };
  }

  /** Refuses before the first byte what `write` would refuse after the last. */
  checkWrite(path: string, uid: number): void {
    this.#walk(path, uid);
    const parent = this.#files[parentOf(path)];
    if (parent?.kind !== "directory") {
      throw new FakeFailure(status.pathNotFound, `${parentOf(path)} does not exist`);
    }
    if (!may(parent, uid, 2)) throw new FakeFailure(status.pathDenied, `${path} is not writable`);
    const before = this.#files[path];
    if (before?.kind === "directory")
      throw new FakeFailure(status.pathIsDirectory, `${path} is one`);
    if (before?.kind === "link") throw isLink(path, before);
  }

  write(path: string, uid: number, written: FakeWrite, nowMs: number): void {
    this.checkWrite(path, uid);
    const { bytes, mode, attributes } = written;
    const content = Buffer.from(bytes).toString("base64");
    const facts = { kind: "file", mode: mode & 0o7777, uid, mtimeMs: nowMs } as const;
    this.#files[path] = { ...facts, content, attributes };
    this.#tell({ type: "created", path });
  }

  /** Names in the folder, with what they are. */
  list(path: string, uid: number): [name: string, file: FakeFile][] {
    const folder = this.stat(path, uid);
    if (folder.kind === "link") throw isLink(path, folder);
    if (folder.kind !== "directory") throw new FakeFailure(status.pathNotFolder, `${path} is none`);
    if (!may(folder, uid, 4)) throw new FakeFailure(status.pathDenied, `${path} is not readable`);
    return this.#below(path)
      .filter((each) => parentOf(each) === path)
      .map((each) => [each.slice(each.lastIndexOf("/") + 1), this.stat(each, 0)]);
  }

  makeFolder(path: string, uid: number, mode: number, parents: boolean, nowMs: number): void {
    const before = this.#files[path];
    if (before !== undefined) {
      this.#walk(path, uid);
      if (parents && before.kind === "directory") return;
      throw before.kind === "link" && parents
        ? isLink(path, before)
        : new FakeFailure(status.pathExists, `${path} exists`);
    }
    if (parents) this.makeFolder(parentOf(path), uid, 0o755, true, nowMs);
    this.#checkParent(path, uid);
    this.#files[path] = {
      kind: "directory",
      mode: mode & 0o7777,
      uid,
      mtimeMs: nowMs,
      content: "",
    };
    this.#tell({ type: "created", path });
  }

  move(from: string, to: string, uid: number, replace: boolean): void {
    const file = this.stat(from, uid);
    this.#checkParent(from, uid);
    this.#checkParent(to, uid);
    const before = this.#files[to];
    if (before !== undefined && !replace) throw new FakeFailure(status.pathExists, `${to} exists`);
    if (before !== undefined && from !== to) {
      if ((before.kind === "directory") !== (file.kind === "directory")) {
        throw before.kind === "directory"
          ? new FakeFailure(status.pathIsDirectory, `${to} is a directory`)
          : new FakeFailure(status.pathNotFolder, `${to} is none`);
      }
      if (this.#below(to).length > 0) throw new FakeFailure(status.pathNotEmpty, `${to} is full`);
    }
    if (`${to}/`.startsWith(`${from}/`) && from !== to) {
      throw new FakeFailure(status.badRequest, `${to} is inside of ${from}`);
    }
    for (const path of [...this.#below(from), from]) {
      const moved = this.#files[path];
      if (moved === undefined || from === to) continue;
      this.#forget(path);
      this.#files[to + path.slice(from.length)] = moved;
    }
    this.#tell({ type: "moved", path: to, from });
  }

  remove(path: string, uid: number, recursive: boolean): void {
    this.stat(path, uid);
    this.#checkParent(path, uid);
    const below = this.#below(path).toSorted().toReversed();
    if (below.length > 0 && !recursive) throw new FakeFailure(status.pathNotEmpty, "It is full");
    for (const each of [...below, path]) {
      this.#forget(each);
      this.#tell({ type: "removed", path: each });
    }
  }

  #forget(path: string): void {
    Reflect.deleteProperty(this.#files, path);
  }

  /** Every path inside of the folder, at any depth. */
  #below(folder: string): string[] {
    const prefix = folder === "/" ? "/" : `${folder}/`;
    return Object.keys(this.#files).filter((path) => path.startsWith(prefix) && path !== folder);
  }

  #checkParent(path: string, uid: number): void {
    this.#walk(path, uid);
    const parent = this.#files[parentOf(path)];
    if (parent === undefined) throw new FakeFailure(status.pathNotFound, `${path} has no parent`);
    if (!may(parent, uid, 2)) throw new FakeFailure(status.pathDenied, `${path} is not writable`);
  }

  #tell(change: FakeChange): void {
    for (const watcher of this.watchers) watcher(change);
  }

  #walk(path: string, uid: number): void {
    for (let at = path.indexOf("/", 1); at > 0; at = path.indexOf("/", at + 1)) {
      const folder = path.slice(0, at);
      const file = this.#files[folder];
      if (file === undefined)
        throw new FakeFailure(status.pathNotFound, `${folder} does not exist`);
      if (file.kind === "link") throw isLink(folder, file);
      if (file.kind === "file") throw new FakeFailure(status.pathNotFound, `${folder} is a file`);
      if (!may(file, uid, 1)) throw new FakeFailure(status.pathDenied, `${folder} is closed`);
    }
  }
}

function isLink(path: string, file: FakeFile): FakeFailure {
  return new FakeFailure(status.pathIsLink, `${path} is a link to ${file.content}`);
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(1, path.lastIndexOf("/")));
}

function may(file: FakeFile, uid: number, right: 1 | 2 | 4): boolean {
  if (uid === 0) return true;
  return ((file.uid === uid ? file.mode >> 6 : file.mode) & right) !== 0;
}
