/** The fake guest's file system: a few folders, two users, modes, links that are never followed. */
import { status } from "../operation.ts";

export interface FakeFile {
  readonly kind: "file" | "directory" | "link";
  readonly mode: number;
  readonly uid: number;
  readonly mtimeMs: number;
  /** Content as base64, or where a link leads: plain data, so that it can be saved. */
  readonly content: string;
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

export class FakeFiles {
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

  write(path: string, uid: number, mode: number, bytes: Uint8Array, nowMs: number): void {
    this.checkWrite(path, uid);
    const content = Buffer.from(bytes).toString("base64");
    this.#files[path] = { kind: "file", mode: mode & 0o7777, uid, mtimeMs: nowMs, content };
  }

  #walk(path: string, uid: number): void {
    for (let at = path.indexOf("/", 1); at > 0; at = path.indexOf("/", at + 1)) {
      const folder = path.slice(0, at);
      const file = this.#files[folder];
      if (file === undefined)
        throw new FakeFailure(status.pathNotFound, `${folder} does not exist`);
      if (file.kind === "link") throw isLink(folder, file);
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
