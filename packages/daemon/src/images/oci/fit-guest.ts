/**
 * What a root file system needs to run in a VM and a container's lacks: folders to mount on, files that a
 * container engine would mount over, the working folder. And what cannot be taken over is looked for, so
 * that it is said.
 */
import { PerdureError } from "@perdure/protocol";
import { invalid, shown } from "./archive-error.ts";
import { everyNode, folderFacts, isImplied, namesOf } from "./tree.ts";
import type { Directory, Facts, FileNode, Node, Tree } from "./tree.ts";

/** Mounted at boot: must be folders, not links to some. */
const mountPoints = ["dev", "proc", "sys", "run"];

const plainFile: Facts = { ...folderFacts, mode: 0o644 };

/** Neutral: each agent gets its own when it is made. An engine would mount its own over these, too. */
const plainFiles: readonly (readonly [name: string, text: string])[] = [
  ["hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"],
  ["hostname", "perdure\n"],
  ["resolv.conf", ""],
  ["machine-id", ""],
];

/** Where each agent's own name, ids and SSH host key are written: by path, and over no link. */
const identityFolders = [["etc"], ["etc", "ssh"]];

/**
 * Changes the tree so that the guest agent can boot it. @param cwd absolute, as the configuration names it
 *
 * @throws `not_supported`, `image_archive_invalid`
 */
export function fitGuest(tree: Tree, cwd: string): void {
  for (const name of mountPoints) {
    if (tree.root.children.get(name)?.kind !== "directory") {
      put(tree, [], name, { kind: "directory", facts: folderFacts, children: new Map() });
    }
  }
  for (const names of identityFolders) assertFolder(tree, names);
  if (!tree.root.children.has("tmp")) tree.makeDirectory(["tmp"]);
  for (const names of sharedFolders) {
    const shared = tree.findDirectory(names);
    if (shared !== null && isImplied(shared)) shared.facts = sharedFacts;
  }
  for (const [name, text] of plainFiles) put(tree, ["etc"], name, file(text));
  tree.makeDirectory(["etc", "perdure", "resume.d"]);
  tree.makeDirectory(namesOf(Buffer.from(cwd, "utf8").toString("latin1")));
}

/** Everybody writes there, also where a layer only has what is in them. */
const sharedFolders = [["tmp"], ["var", "tmp"]];
const sharedFacts: Facts = { ...folderFacts, mode: 0o1777 };

function assertFolder(tree: Tree, names: readonly string[]): void {
  const there = tree.find(names);
  if (there === null || there.kind === "directory") return;
  const what = there.kind === "symlink" ? "a symbolic link" : `a ${there.kind}`;
  throw new PerdureError(
    "not_supported",
    `Cannot import the archive: "/${names.join("/")}" is ${what} in it`,
    { hint: "Make it a folder in the image: each agent gets an identity of its own in there." },
  );
}

function put(tree: Tree, folder: readonly string[], name: string, node: Node): void {
  const place = tree.makeDirectory(folder);
  const there = place.directory.children.get(name);
  if (there?.kind === "directory" && node.kind !== "directory") {
    throw invalid(`${shown([...folder, name].join("/"))} is a directory in it`);
  }
  tree.count(place, name);
  place.directory.children.set(name, node);
}

function file(text: string): FileNode {
  const content = Buffer.from(text);
  return { kind: "file", facts: plainFile, bytes: content.length, content };
}

/** How many names of one kind a notice lists. */
const namesListed = 5;
/** Attributes that ext4 keeps, on what may have them. */
const attributeName = /^(user|security|trusted)\.[\x21-\x3c\x3e-\x7e]{1,200}$/;

export function keepsAttribute(node: Node, name: string): boolean {
  if (!attributeName.test(name)) return false;
  return !name.startsWith("user.") || node.kind === "file" || node.kind === "directory";
}

/** What of the tree no file system is made with, in sentences. */
export function leftOut(root: Directory): string[] {
  const devices: string[] = [];
  const attributes: string[] = [];
  for (const { path, node } of everyNode(root)) {
    // What lies in /dev is never seen: the kernel's own is mounted over it.
    if (node.kind === "device" && !path.startsWith("dev/")) devices.push(`/${path}`);
    for (const name of node.facts.xattrs?.keys() ?? []) {
      if (!keepsAttribute(node, name)) attributes.push(`${name} of /${path}`);
    }
  }
  return [
    ...notice("Device nodes were left out", devices),
    ...notice("Extended attributes were left out", attributes),
  ];
}

function notice(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > namesListed ? ` and ${names.length - namesListed} more` : "";
  return [`${what}: ${names.slice(0, namesListed).map(shown).join(", ")}${more}`];
}
