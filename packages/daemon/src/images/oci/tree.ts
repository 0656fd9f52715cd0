/**
 * The root file system that layers add up to, as a tree in memory. Nothing is unpacked while layers are
 * applied: what a layer does to the ones below is done here, to nodes, where a symbolic link is a word and
 * leads nowhere on the host.
 *
 * Links in the way to a path are followed inside the tree, as container tools do: `/` is the tree's root,
 * `..` never leads above it. So the tree has no path that leaves it, whatever the layers say.
 */
import { invalid, shown, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";

export interface Facts {
  /** Permission bits with setuid, setgid and sticky. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeSeconds: number;
  readonly xattrs: ReadonlyMap<string, Buffer> | null;
}

export interface Directory {
  readonly kind: "directory";
  facts: Facts;
  /** By name, latin1. Hard links are one node under several names. */
  readonly children: Map<string, Node>;
}

export interface FileNode {
  readonly kind: "file";
  readonly facts: Facts;
  readonly bytes: number;
  /** Bytes at hand, or the entry of a layer that has them. */
  readonly content: Buffer | { readonly layer: number; readonly entry: number };
}

export type Node =
  | Directory
  | FileNode
  | { readonly kind: "symlink"; readonly facts: Facts; readonly target: string }
  | { readonly kind: "fifo"; readonly facts: Facts }
  /** Kept so that later layers find it; no file system is made with it. */
  | { readonly kind: "device"; readonly facts: Facts };

/** As the kernel bounds it. */
const hopsMax = 40;

export const folderFacts: Facts = { mode: 0o755, uid: 0, gid: 0, mtimeSeconds: 0, xattrs: null };

/** Made because something lies in it: no layer says what it is like. */
export function isImplied({ facts }: Directory): boolean {
  return facts === folderFacts;
}

export interface Place {
  readonly directory: Directory;
  /** Length of the path to it. */
  readonly pathBytes: number;
}

export class Tree {
  readonly root: Directory = { kind: "directory", facts: folderFacts, children: new Map() };
  readonly #limits: Limits;
  #made = 0;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** The directory at `names`, made where absent. @throws where something else is in the way */
  makeDirectory(names: readonly string[]): Place {
    const found = this.#walk(names, true, () => false);
    if (found === null) throw new Error("A directory that is made is there");
    return found;
  }

  /**
   * The directory at `names`, or null.
   *
   * @param isReplaced whether what the first `taken` names lead to counts as gone where it is no directory
   */
  findDirectory(
    names: readonly string[],
    isReplaced: (taken: number) => boolean = () => false,
  ): Directory | null {
    return this.#walk(names, false, isReplaced)?.directory ?? null;
  }

  /** What is at `names`; links in the way are followed, one that is there is not. */
  find(names: readonly string[]): Node | null {
    const last = names.at(-1);
    if (last === undefined) return this.root;
    return this.findDirectory(names.slice(0, -1))?.children.get(last) ?? null;
  }

  /** The file at `names`; links are followed, also the last. Null where there is none. */
  findFile(names: readonly string[]): FileNode | null {
    let wanted = [...names];
    for (let hops = 0; hops <= hopsMax; hops++) {
      const found = this.find(wanted);
      if (found?.kind === "file") return found;
      if (found?.kind !== "symlink") return null;
      const from = found.target.startsWith("/") ? [] : wanted.slice(0, -1);
      wanted = [...from, ...namesOf(found.target)];
    }
    return null;
  }

  /** Makes room for one more node: what is made in the way counts, too. @throws `too_large` */
  count(place: Place, name: string): void {
    const limits = this.#limits;
    if (name.length > limits.nameBytesMax) {
      throw tooLarge(`the bytes of the name ${shown(name)}`, "nameBytesMax", limits);
    }
    // Through links a path can be longer than any that a layer names.
    if (place.pathBytes + 1 + name.length > limits.pathBytesMax) {
      throw tooLarge(`the bytes of the path to ${shown(name)}`, "pathBytesMax", limits);
    }
    this.#made += 1;
    if (this.#made > limits.entriesMax) {
      throw tooLarge("the entries of its layers", "entriesMax", limits);
    }
  }

  #walk(
    names: readonly string[],
    make: boolean,
    isReplaced: (taken: number) => boolean,
  ): Place | null {
    const top: Place = { directory: this.root, pathBytes: 0 };
    const way: Place[] = [];
    // The rest of the names lies below the targets of links that are on the way.
    const todo = names.toReversed();
    let own = names.length;
    let hops = 0;
    for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
      const isOwn = todo.length < own;
      if (isOwn) own = todo.length;
      if (name === "" || name === ".") continue;
      if (name === "..") {
        way.pop();
        continue;
      }
      const place = way.at(-1) ?? top;
      const child =
        place.directory.children.get(name) ?? (make ? this.#add(place, name) : undefined);
      if (child?.kind === "directory") {
        way.push({ directory: child, pathBytes: place.pathBytes + 1 + name.length });
        continue;
      }
      if (child === undefined || (isOwn && isReplaced(names.length - own))) return null;
      if (child.kind !== "symlink") {
        if (!make) return null;
        throw invalid(`a ${child.kind} is in the way to ${shown(names.join("/"))}`);
      }
      hops += 1;
      if (hops > hopsMax) {
        throw invalid(`the links in the way to ${shown(names.join("/"))} lead in a circle`);
      }
      if (child.target.startsWith("/")) way.length = 0;
      todo.push(...child.target.split("/").toReversed());
    }
    return way.at(-1) ?? top;
  }

  #add(place: Place, name: string): Directory {
    this.count(place, name);
    const made: Directory = { kind: "directory", facts: folderFacts, children: new Map() };
    place.directory.children.set(name, made);
    return made;
  }
}

/** The names in a path. `..` stays: what it means depends on links. */
export function namesOf(path: string): string[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

/** Names without `..`, as where no name is a link; above the root is the root. */
export function resolved(names: readonly string[]): string[] {
  const way: string[] = [];
  for (const name of names) {
    if (name === "..") way.pop();
    else if (name !== "" && name !== ".") way.push(name);
  }
  return way;
}

export interface Placed {
  /** Names from the root on; empty for the root itself. */
  readonly path: string;
  readonly node: Node;
}

/** Every node under every name, parents first, names in order of their bytes. */
export function* everyNode(root: Directory): Generator<Placed> {
  const todo: Placed[] = [{ path: "", node: root }];
  for (let placed = todo.pop(); placed !== undefined; placed = todo.pop()) {
    yield placed;
    if (placed.node.kind !== "directory") continue;
    const { children } = placed.node;
    const prefix = placed.path === "" ? "" : `${placed.path}/`;
    for (const name of [...children.keys()].sort().toReversed()) {
      const node = children.get(name);
      if (node !== undefined) todo.push({ path: prefix + name, node });
    }
  }
}
