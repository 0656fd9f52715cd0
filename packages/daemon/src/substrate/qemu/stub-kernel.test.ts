import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readStub, stubOf } from "./stub-kernel.ts";

/** The front of a bzImage with so many sectors of real-mode code, then a kernel of `0xee`. */
function bzImage(sectors: number, bytes = 256 * 512): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(bytes).fill(0xee);
  file.fill(0x11, 0, Math.min(bytes, ((sectors || 4) + 1) * 512));
  const view = new DataView(file.buffer);
  view.setUint8(0x1f1, sectors);
  view.setUint16(0x1fe, 0xaa55, true);
  file.set(Buffer.from("HdrS"), 0x202);
  view.setUint16(0x206, 0x020f, true);
  view.setUint8(0x211, 0x01);
  return file;
}

test("a stub is the real-mode part and an empty sector, nothing of the kernel", () => {
  for (const sectors of [1, 39, 254]) {
    const kernel = bzImage(sectors);
    const bytes = (sectors + 1) * 512;
    const stub = stubOf(kernel);
    expect(stub?.length).toBe(bytes + 512);
    expect(stub?.subarray(0, bytes)).toEqual(kernel.subarray(0, bytes));
    expect(stub?.subarray(bytes)).toEqual(new Uint8Array(512));
  }
});

test("no sectors means four", () => {
  expect(stubOf(bzImage(0))?.length).toBe(5 * 512 + 512);
});

test("what is no bzImage, or is cut off, has no stub", () => {
  const changed = (at: number, value: number): Uint8Array => {
    const kernel = bzImage(39);
    kernel[at] = value;
    return kernel;
  };
  expect(stubOf(new Uint8Array(0))).toBeNull();
  expect(stubOf(new Uint8Array(4096))).toBeNull();
  expect(stubOf(Buffer.from(`\x7fELF${"\0".repeat(4096)}`, "latin1"))).toBeNull();
  expect(stubOf(changed(0x1fe, 0)), "boot sector's mark").toBeNull();
  expect(stubOf(changed(0x202, 0)), "header's mark").toBeNull();
  expect(stubOf(changed(0x207, 0x01)), "old protocol").toBeNull();
  expect(stubOf(changed(0x211, 0x00)), "loaded low: a zImage").toBeNull();
  expect(stubOf(bzImage(39, 20 * 512)), "shorter than its real-mode part").toBeNull();
  expect(stubOf(bzImage(39).subarray(0, 0x210)), "shorter than its header").toBeNull();
});

test("any bytes have a stub of bounded size or none", () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 4096 }),
      fc.boolean(),
      fc.integer({ min: 0, max: 255 }),
      (bytes, marked, sectors) => {
        const file = Uint8Array.from(bytes);
        if (marked && file.length >= 0x212) {
          file.set(bzImage(sectors).subarray(0x1f1, 0x212), 0x1f1);
        }
        const stub = stubOf(file);
        return stub === null || (stub.length <= file.length + 512 && stub.length % 512 === 0);
      },
    ),
  );
});

test("a file is read as far as its stub may reach", async () => {
  const folder = await mkdtemp(join(tmpdir(), "perdure-stub-"));
  try {
    const path = join(folder, "vmlinuz");
    await writeFile(path, bzImage(255, 1024 * 1024));
    expect((await readStub(path))?.length).toBe(257 * 512);
    await writeFile(path, "short");
    expect(await readStub(path)).toBeNull();
    await expect(readStub(join(folder, "none"))).rejects.toThrow("ENOENT");
  } finally {
    await rm(folder, { recursive: true });
  }
});
