/** Makes and grows ext4 file systems in sparse files, without mounting anything. */
import { rename, truncate, writeFile } from "node:fs/promises";
import path from "node:path";
import { runTool } from "./tool-process.ts";

/** The same in every image: it names the layout, not a disk, and makes builds alike. */
const fileSystemUuid = "7065726e-6475-7265-8000-000000000001";

/** The host's mke2fs.conf is not used: what a file system is made of must not depend on the host. */
const mke2fsConf = `[defaults]
base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
blocksize = 4096
inode_size = 256
inode_ratio = 16384
reserved_ratio = 0
[fs_types]
ext4 = {
  features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
}
`;

/** As in the settings above. */
const blockBytes = 4096;

export interface Ext4Options {
  /** Length of the file. */
  readonly bytes: number;
  /** Files, folders and links that it has room for; absent: as many as usual for its length. */
  readonly inodes?: number;
  /** The length that it may be grown to while it is in use; absent: 1024 times its own. */
  readonly growsToBytes?: number;
  /** Time of everything the tool makes itself, seconds since 1970. */
  readonly epochSeconds: number;
  /** Runs mke2fs; the builder wraps it where file owners are not the real ones. */
  readonly run: typeof runTool;
}

/** Writes the tree `root` as a file system to `file`; temporary settings go to `workspace`. */
export async function makeExt4(
  root: string,
  file: string,
  workspace: string,
  options: Ext4Options,
): Promise<void> {
  const config = path.join(workspace, "mke2fs.conf");
  await writeFile(config, mke2fsConf);
  await writeFile(file, "", { flag: "wx" });
  await truncate(file, options.bytes);
  // Nothing lazy: the kernel would otherwise finish the work in every agent, dirtying its disk.
  const extended = [
    "lazy_itable_init=0",
    "lazy_journal_init=0",
    "nodiscard",
    `hash_seed=${fileSystemUuid}`,
    "root_owner=0:0",
    ...(options.growsToBytes === undefined
      ? []
      : [`resize=${String(options.growsToBytes / blockBytes)}`]),
  ];
  await options.run(
    "mke2fs",
    [
      ...["-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=32", "-U", fileSystemUuid],
      ...(options.inodes === undefined ? [] : ["-N", String(options.inodes)]),
      ...["-E", extended.join(","), "-d", root, file],
    ],
    {
      env: {
        MKE2FS_CONFIG: config,
        SOURCE_DATE_EPOCH: String(options.epochSeconds),
        E2FSPROGS_FAKE_TIME: String(options.epochSeconds),
      },
    },
  );
  await fixTimes(file, workspace, options.epochSeconds);
  await makeSparse(file);
}

const mebibyte = 1024 * 1024;
const bytesStep = 4 * mebibyte;
const bytesMin = 256 * mebibyte;
/** Journal, group tables, and some room. */
const bytesExtra = 128 * mebibyte;
const inodesExtra = 4096;
const inodeBytes = 256;
/** As everywhere: one for so many bytes. */
const bytesPerInode = 16384;

export interface Ext4Size {
  /** Length of the file: the smallest disk that can be made from the image. */
  readonly bytes: number;
  readonly inodes: number;
}

/** The size for so many bytes, in whole blocks, in so many files, folders and links. */
export function ext4SizeFor({ bytes, inodes }: Ext4Size): Ext4Size {
  const wanted = inodes + Math.ceil(inodes / 8) + inodesExtra;
  const content = bytes + wanted * inodeBytes;
  const length = Math.max(bytesMin, content + Math.ceil(content / 20) + bytesExtra);
  const rounded = Math.ceil(length / bytesStep) * bytesStep;
  return { bytes: rounded, inodes: Math.max(wanted, Math.floor(rounded / bytesPerInode)) };
}

/** Inodes in use, from the groups that dumpe2fs prints; the reserved ones only where they are used. */
export function usedInodes(dump: string): number[] {
  const count = Number(/^Inode count:\s+(\d+)$/m.exec(dump)?.[1] ?? 0);
  const free = new Set<number>();
  for (const [, list = ""] of dump.matchAll(/^ {2}Free inodes: (.+)$/gm)) {
    for (const range of list.split(", ")) {
      const [from = NaN, to = from] = range.split("-").map(Number);
      for (let inode = from; inode <= to; inode++) free.add(inode);
    }
  }
  const all = Array.from({ length: count }, (_, index) => index + 1);
  return all.filter((inode) => inode === 2 || (inode >= firstInode && !free.has(inode)));
}

/** The first inode that is not reserved. */
const firstInode = 11;

/** mke2fs copies when each file was unpacked and read here: the only thing that differs per build. */
async function fixTimes(file: string, workspace: string, epochSeconds: number): Promise<void> {
  const script = path.join(workspace, "fix-times");
  const inodes = usedInodes(await runTool("dumpe2fs", [file]));
  const lines = inodes.flatMap((inode) =>
    ["atime", "ctime"].map((field) => `set_inode_field <${inode}> ${field} @${epochSeconds}\n`),
  );
  await writeFile(script, lines.join(""));
  await runTool("debugfs", ["-w", "-f", script, file], {
    env: { E2FSPROGS_FAKE_TIME: String(epochSeconds) },
  });
  await runTool("e2fsck", ["-f", "-n", file]);
}

/** Inode tables and the journal are zeros that need no room, though the tools reserve it. */
async function makeSparse(file: string): Promise<void> {
  await runTool("cp", ["--sparse=always", "--reflink=never", file, `${file}.sparse`]);
  await rename(`${file}.sparse`, file);
}
