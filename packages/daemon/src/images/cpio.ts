/**
 * Writes cpio archives in the "newc" form that the kernel unpacks as its first file system
 * (Documentation/driver-api/early-userspace/buffer-format.rst). Written here rather than by the
 * cpio tool because owners and device nodes then need no privilege, and two runs give equal bytes.
 */

export type CpioEntry =
  | { readonly kind: "directory"; readonly path: string; readonly mode: number }
  | {
      readonly kind: "file";
      readonly path: string;
      readonly mode: number;
      readonly content: Uint8Array;
    }
  | {
      readonly kind: "character-device";
      readonly path: string;
      readonly mode: number;
      readonly major: number;
      readonly minor: number;
    };

const typeBits = { directory: 0o040000, file: 0o100000, "character-device": 0o020000 } as const;

/** An archive of `entries` in the given order, all owned by root, all times 0. */
export function writeCpio(entries: readonly CpioEntry[]): Buffer {
  const parts = entries.flatMap((entry, index) => record(entry, index + 1));
  parts.push(...header("TRAILER!!!", [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]));
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  parts.push(Buffer.alloc((512 - (length % 512)) % 512));
  return Buffer.concat(parts);
}

function record(entry: CpioEntry, inode: number): Uint8Array[] {
  const size = entry.kind === "file" ? entry.content.length : 0;
  const [major, minor] =
    entry.kind === "character-device" ? [entry.major, entry.minor] : ([0, 0] as const);
  const links = entry.kind === "directory" ? 2 : 1;
  const mode = typeBits[entry.kind] | entry.mode;
  const parts: Uint8Array[] = header(entry.path, [
    ...[inode, mode, 0, 0, links, 0, size],
    ...[0, 0, major, minor],
  ]);
  if (entry.kind === "file") parts.push(entry.content, padding(size));
  return parts;
}

/** @param numbers inode, mode, uid, gid, links, time, size, device pair, device node pair */
function header(path: string, numbers: readonly number[]): Buffer[] {
  const name = Buffer.from(`${path}\0`, "utf8");
  const fields = [...numbers, name.length, 0]; // the last one is a checksum that newc leaves at 0
  const text = fields.map((value) => value.toString(16).padStart(8, "0")).join("");
  const head = Buffer.from(`070701${text}`, "ascii");
  return [head, name, padding(head.length + name.length)];
}

function padding(length: number): Buffer {
  return Buffer.alloc((4 - (length % 4)) % 4);
}
