/**
 * The tree as an ext4 file system, without mounting anything: GNU tar unpacks it into a folder that nobody
 * else can reach, setfattr puts extended attributes on (tar would set them before fakeroot knows what kind
 * of file it is), mke2fs packs the folder. As root directly; as another user under fakeroot, in one session,
 * which remembers owners, modes and attributes for mke2fs to read.
 */
import { mkdir, rm, statfs, writeFile } from "node:fs/promises";
import path from "node:path";
import { agentLimits, PerdureError } from "@perdure/protocol";
import { ext4SizeFor, makeExt4 } from "../ext4.ts";
import { assertTools } from "../host-tool.ts";
import { runTool } from "../tool-process.ts";
import type { Emission } from "./emit-tree.ts";

const inodeBytes = 256;
const journalBytes = 32 * 1024 * 1024;

/** @throws `disk_full` where the folder has no room for the tree and the file system */
export async function assertRoom(folder: string, { bytes, inodes }: Emission): Promise<void> {
  const space = await statfs(folder);
  const free = space.bavail * space.bsize;
  // Unpacked, then packed, then packed once more without what the tools reserved.
  const needed = 3 * bytes + inodes * inodeBytes + 3 * journalBytes;
  if (free >= needed) return;
  throw new PerdureError(
    "disk_full",
    `Cannot make an image in "${folder}": ${needed} bytes are needed and ${free} are free`,
    { details: { neededBytes: needed, freeBytes: free } },
  );
}

/**
 * Writes the file system to `file`.
 *
 * @param tar what `emission.tar` gives
 * @throws `image_build_failed` also where a file's attributes could not be kept
 */
export async function makeRootfs(
  emission: Emission,
  tar: AsyncIterable<Buffer>,
  file: string,
  workspace: string,
  epochSeconds: number,
): Promise<void> {
  const isRoot = process.getuid?.() === 0;
  await assertTools([
    ...(["tar", "setfattr", "mke2fs", "dumpe2fs", "debugfs", "e2fsck"] as const),
    ...(isRoot ? [] : (["fakeroot"] as const)),
  ]);
  const tree = path.join(workspace, "tree");
  const attributes = path.join(workspace, "attributes");
  await mkdir(tree, { mode: 0o700 });
  await writeFile(attributes, emission.attributes, "latin1");
  const complaints: string[] = [];
  const unpackThen: typeof runTool = async (command, args, options) => {
    const line = ["sh", "-c", unpackScript, "sh", tree, attributes, command, ...args];
    const [first = "sh", ...rest] = isRoot ? line : ["fakeroot", "--", ...line];
    return runTool(first, rest, {
      ...options,
      stdin: tar,
      onLine: (text) => {
        // What it cannot keep, it only warns of; and nothing in this archive is worth a warning.
        if (text.startsWith("tar: ")) complaints.push(text);
      },
    });
  };
  try {
    const growsToBytes = agentLimits.diskBytesMax;
    const size = ext4SizeFor(emission);
    await makeExt4(tree, file, workspace, { ...size, growsToBytes, epochSeconds, run: unpackThen });
  } finally {
    await rm(tree, { recursive: true, force: true });
  }
  const [complaint] = complaints;
  if (complaint === undefined) return;
  throw new PerdureError(
    "image_build_failed",
    `A file could not be unpacked as it is: ${complaint}`,
    { hint: "Keep images on a file system with owners and extended attributes, such as ext4." },
  );
}

const unpackScript = `set -eu
tree="$1"
attributes="$2"
shift 2
tar --extract --file=- --directory="$tree" --numeric-owner --same-owner --preserve-permissions \\
  --delay-directory-restore --warning=no-timestamp
[ ! -s "$attributes" ] || (cd "$tree" && exec setfattr --no-dereference --restore="$attributes")
exec "$@"`;
