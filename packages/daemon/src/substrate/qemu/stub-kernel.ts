/**
 * What a spare is given in place of its kernel. QEMU copies the kernel into memory of its own for the
 * boot, 14 MB that a spare never uses: it gets its state later and never boots. But `-kernel` also adds
 * an option ROM that the guest can see, so a spare is given the front of its own kernel: the real-mode
 * part, from which QEMU takes everything but the bytes themselves.
 */
import { open } from "node:fs/promises";

const SECTOR_BYTES = 512;
/** The header, and the part before it. */
const HEADER_END = 0x268;
/** The number of sectors is one byte; the boot sector is not counted. */
const FRONT_BYTES_MAX = 256 * SECTOR_BYTES;
/** Stated as 0, it is this many: kernels of the last century. */
const DEFAULT_SECTORS = 4;
/** Since this version of the boot protocol all that QEMU asks of a kernel is in the header. */
const PROTOCOL_MIN = 0x0202;
const LOADED_HIGH = 0x01;

/**
 * The stub of a kernel whose file starts with `front`, or null where it is no bzImage: QEMU treats
 * others (ELF, multiboot) differently, and they are given whole.
 */
export function stubOf(front: Uint8Array): Uint8Array<ArrayBuffer> | null {
  if (front.length < HEADER_END) return null;
  const view = new DataView(front.buffer, front.byteOffset, front.byteLength);
  const bzImage =
    view.getUint16(0x1fe, true) === 0xaa55 &&
    Buffer.from(front.subarray(0x202, 0x206)).toString("latin1") === "HdrS" &&
    view.getUint16(0x206, true) >= PROTOCOL_MIN &&
    (view.getUint8(0x211) & LOADED_HIGH) !== 0;
  if (!bzImage) return null;
  const sectors = view.getUint8(0x1f1) || DEFAULT_SECTORS;
  const realModeBytes = (1 + sectors) * SECTOR_BYTES;
  if (front.length < realModeBytes) return null;
  // One sector of nothing, so that the protected-mode part is not empty.
  const stub = new Uint8Array(realModeBytes + SECTOR_BYTES);
  stub.set(front.subarray(0, realModeBytes));
  return stub;
}

/** As `stubOf`, of a file. Throws what reading throws. */
export async function readStub(kernelPath: string): Promise<Uint8Array<ArrayBuffer> | null> {
  const file = await open(kernelPath, "r");
  try {
    const front = new Uint8Array(FRONT_BYTES_MAX);
    let bytes = 0;
    while (bytes < front.length) {
      const { bytesRead } = await file.read(front, bytes, front.length - bytes, bytes);
      if (bytesRead === 0) break;
      bytes += bytesRead;
    }
    return stubOf(front.subarray(0, bytes));
  } finally {
    await file.close();
  }
}
