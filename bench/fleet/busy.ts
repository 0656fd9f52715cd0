/**
 * A busy program inside a VM, and how much it gets done, read from outside. It hashes through 4 MiB that
 * it also changes, and counts in a page of its own, which the host reads straight from the VM process's
 * memory: no clock inside, no link and no daemon lies between.
 */
import { closeSync, openSync, readSync } from "node:fs";
import { readUntil, type Inside } from "../inside.ts";
import { newMark } from "../ticker.ts";

const program = `
import hashlib, mmap, struct, sys
page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page[0:32] = bytes(byte ^ 255 for byte in bytes.fromhex(sys.argv[1]))
work = bytearray(4 << 20)
print("working", flush=True)
count = 0
while True:
    at = count % 1024 * 4096
    work[at:at + 32] = hashlib.sha256(work[at:at + 4096]).digest()
    count += 1
    struct.pack_into("<Q", page, 32, count)
`;

/** @returns the mark of its page, for `findCounter` */
export async function startBusy(inside: Inside): Promise<Buffer> {
  const mark = newMark();
  const inverted = Buffer.from(mark.map((byte) => byte ^ 0xff)).toString("hex");
  await readUntil(await inside.start(["python3", "-c", program, inverted]), /working/);
  return mark;
}

/** How many pages it has hashed since it began. */
export function readCount({ pid, counter }: { pid: number; counter: number }): number {
  const memory = openSync(`/proc/${pid}/mem`, "r");
  try {
    const bytes = Buffer.alloc(8);
    readSync(memory, bytes, 0, 8, counter);
    return Number(bytes.readBigUInt64LE());
  } finally {
    closeSync(memory);
  }
}
