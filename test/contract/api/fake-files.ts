/**
 * For tests: the files of a fake agent, in memory. Folders on the way to a file are there by themselves; links
 * are as they were put. Whatever changes is told to watchers.
 */
import { PerdureError } from "@perdure/protocol";
import type {
  FileChange,
  FileFacts,
  FolderEntry,
} from "../../../packages/daemon/src/core/ports/guest-link.ts";
import type {
  FileCommands,
  FileWrite,
  MakeFolder,
  MovePath,
  RemovePath,
  WatchEvent,
} from "../../../packages/daemon/src/core/file-command.ts";

interface Node {
  readonly kind: FileFacts["kind"];
  readonly bytes: Uint8Array;
  readonly mode: number;
  readonly linkTarget: string | null;
  readonly attributes?: Readonly<Record<string, string>>;
}

type Told = (event: WatchEvent) => void;

const atMs = 1_700_000_000_000;
const nothing = new Uint8Array(0);

export class FakeFiles {
  readonly #nodes = new Map<string, Node>();
  readonly #watchers = new Map<Told, string>();

  get watchers(): number {
    return this.#watchers.size;
  }

  /** A symbolic link; the API makes none. */
  link(path: string, target: string): void {
    this.#put(path, { kind: "link", bytes: nothing, mode: 0o777, linkTarget: target });
  }

  /** Tells every watcher. */
  tell(event: WatchEvent): void {
    for (const told of this.#watchers.keys()) told(event);
  }

  stat(path: string): FileFacts {
    return facts(this.#find(path, "look at"));
  }

  read(path: string, range?: { readonly offset: number; readonly length?: number }) {
    const node = this.#find(path, "read");
    if (node.kind === "directory") throw refused("path_is_directory", "read", path);
    if (node.kind !== "file") throw refused("path_is_link", "read", path);
    const { offset = 0, length = Infinity } = range ?? {};
    return { facts: facts(node), bytes: inChunks(node.bytes.subarray(offset, offset + length)) };
  }

  async write(
    { path, mode, attributes = {} }: FileWrite,
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    if (path.startsWith("/denied")) throw refused("path_denied", "write", path);
    const chunks: Uint8Array[] = [];
    for await (const chunk of bytes) {
      if (path.startsWith("/full")) throw refused("disk_full", "write", path);
      chunks.push(chunk);
    }
    const before = this.#nodes.has(path);
    const node = { bytes: Buffer.concat(chunks), mode, attributes };
    this.#put(path, { kind: "file", linkTarget: null, ...node });
    if (before) this.#happen({ type: "changed", path });
  }

  makeFolder({ path, mode, parents }: MakeFolder): void {
    if (path.startsWith("/denied")) throw refused("path_denied", "make the folder", path);
    if (this.#lookUp(path) !== undefined) {
      if (parents) return;
      throw refused("path_exists", "make the folder", path);
    }
    this.#put(path, { kind: "directory", bytes: nothing, mode, linkTarget: null });
  }

  move({ from, to, replace }: MovePath): void {
    this.#find(from, "move");
    if (this.#lookUp(to) !== undefined) {
      if (!replace) throw refused("path_exists", "move to", to);
      this.#drop(to);
    }
    for (const [path, node] of [...this.#nodes]) {
      if (path !== from && !path.startsWith(`${from}/`)) continue;
      this.#nodes.delete(path);
      this.#nodes.set(to + path.slice(from.length), node);
    }
    this.#happen({ type: "moved", from, path: to });
  }

  remove({ path, recursive }: RemovePath): void {
    const { kind } = this.#find(path, "remove");
    const isEmpty = kind !== "directory" || [...this.#names(path)].length === 0;
    if (!isEmpty && !recursive) throw refused("path_not_empty", "remove", path);
    this.#drop(path);
    this.#happen({ type: "removed", path });
  }

  list(path: string): AsyncIterable<FolderEntry> {
    if (this.#find(path, "list").kind !== "directory") {
      throw refused("path_not_folder", "list", path);
    }
    const entries = [...this.#names(path)].map((name) => {
      const node = this.#find(join(path, name), "look at");
      return { name, ...facts(node), linkTarget: node.linkTarget };
    });
    return (async function* () {
      for (const entry of entries) yield await Promise.resolve(entry);
    })();
  }

  watch(path: string, signal: AbortSignal): ReturnType<FileCommands["watch"]> {
    this.#find(path, "watch");
    const events: WatchEvent[] = [{ type: "ready" }];
    let wake = (): void => undefined;
    const told: Told = (event) => {
      events.push(event);
      wake();
    };
    const watchers = this.#watchers;
    watchers.set(told, path);
    signal.addEventListener("abort", () => {
      watchers.delete(told);
      wake();
    });
    return Promise.resolve(
      (async function* () {
        try {
          while (!signal.aborted) {
            const event = events.shift();
            if (event === undefined) {
              await new Promise<void>((resolve) => (wake = resolve));
              continue;
            }
            yield event;
            if (event.type === "interrupted") return;
            if (event.type === "removed" && event.path === path) return;
          }
        } finally {
          watchers.delete(told);
        }
      })(),
    );
  }

  #put(path: string, node: Node): void {
    const before = this.#nodes.has(path);
    this.#nodes.set(path, node);
    if (!before) this.#happen({ type: "created", path });
  }

  #drop(path: string): void {
    for (const each of [...this.#nodes.keys()]) {
      if (each === path || each.startsWith(`${path}/`)) this.#nodes.delete(each);
    }
  }

  #happen(change: FileChange & { readonly path: string }): void {
    for (const [told, path] of this.#watchers) {
      if (change.path === path || change.path.startsWith(`${path}/`)) told(change);
    }
  }

  #lookUp(path: string): Node | undefined {
    const node = this.#nodes.get(path);
    if (node !== undefined) return node;
    const isFolder =
      path === "/" || [...this.#nodes.keys()].some((each) => each.startsWith(`${path}/`));
    const folder = { kind: "directory", bytes: nothing, mode: 0o755, linkTarget: null } as const;
    return isFolder ? folder : undefined;
  }

  #find(path: string, action: string): Node {
    const node = this.#lookUp(path);
    if (node === undefined) throw refused("path_not_found", action, path);
    return node;
  }

  #names(folder: string): Set<string> {
    const prefix = join(folder, "");
    const below = [...this.#nodes.keys()].filter((path) => path.startsWith(prefix));
    return new Set(below.map((path) => path.slice(prefix.length).split("/")[0] ?? ""));
  }
}

function join(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}

function facts({ kind, bytes, mode, attributes = {} }: Node): FileFacts {
  return { kind, size: bytes.length, mode, uid: 1000, gid: 1000, mtimeMs: atMs, attributes };
}

function refused(code: PerdureError["code"], action: string, path: string): PerdureError {
  return new PerdureError(code, `Cannot ${action} "${path}": ${code}`);
}

export async function* inChunks(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 65_536) {
    await Promise.resolve();
    yield bytes.subarray(at, at + 65_536);
  }
}
