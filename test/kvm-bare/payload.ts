/**
 * A program for a bare machine: 64 KiB that QEMU runs in place of a BIOS. It copies itself to RAM, then
 * for ever counts, leaves each count in one of 128 pages, and prints every 8,192nd on the serial port.
 *
 * It needs no kernel, so it runs under KVM also on hosts whose KVM cannot run one.
 *
 * - I1 At any instant the page of index `count mod 128` holds `count`, or the count of 128 before it
 *   (the one instruction between counting and writing). Nothing else in those pages ever changes.
 * - I2 The printed numbers are consecutive multiples of 8,192, whatever happens to the machine.
 */

export const payload = {
  /** Where the program runs. */
  codeAddress: 0x8000,
  /** The count, 32 bits. */
  counterAddress: 0x9000,
  /** First of the pages that it writes; each begins with the count that was written last. */
  pagesAddress: 0x20000,
  pages: 128,
  printEvery: 0x2000,
} as const;

const ROM_BYTES = 64 * 1024;

/** The whole image: code at its start, the reset vector sixteen bytes before its end. */
export function buildPayload(): Uint8Array {
  const rom = new Uint8Array(ROM_BYTES);
  const program = assemble(programLines, payload.codeAddress);
  const copyFrom = 0x100;
  rom.set(assemble(copyLines(copyFrom, program.length), 0), 0);
  rom.set(program, copyFrom);
  // jmp f000:0000
  rom.set([0xea, 0x00, 0x00, 0x00, 0xf0], ROM_BYTES - 16);
  return rom;
}

/** A byte, the name of this place, or the distance to a named place in one or two bytes. */
type Piece = number | { readonly here: string } | { readonly near: string; readonly bytes: 1 | 2 };

const here = (name: string): Piece => ({ here: name });
const short = (name: string): Piece => ({ near: name, bytes: 1 });
const near = (name: string): Piece => ({ near: name, bytes: 2 });
const word = (value: number): number[] => [value & 0xff, value >> 8];

/** Copies the program out of the ROM, which is gone after a wake, and goes there. */
function copyLines(from: number, bytes: number): Piece[][] {
  return [
    [0xfa], // cli
    [0xfc], // cld
    [0xb8, ...word(0xf000)], // mov ax, f000
    [0x8e, 0xd8], // mov ds, ax
    [0x31, 0xc0], // xor ax, ax
    [0x8e, 0xc0], // mov es, ax
    [0x8e, 0xd0], // mov ss, ax
    [0xbc, ...word(0x7000)], // mov sp, 7000
    [0xbe, ...word(from)], // mov si, from
    [0xbf, ...word(payload.codeAddress)], // mov di, code
    [0xb9, ...word(bytes)], // mov cx, bytes
    [0xf3, 0xa4], // rep movsb
    [0x8e, 0xd8], // mov ds, ax
    [0xea, ...word(payload.codeAddress), ...word(0)], // jmp 0000:code
  ];
}

const programLines: Piece[][] = [
  [here("loop")],
  [0x66, 0xff, 0x06, ...word(payload.counterAddress)], // inc dword [counter]
  [0x66, 0xa1, ...word(payload.counterAddress)], // mov eax, [counter]
  [0x66, 0x89, 0xc2], // mov edx, eax
  [0x25, ...word(payload.pages - 1)], // and ax, 127
  [0xc1, 0xe0, 0x08], // shl ax, 8: pages to paragraphs
  [0x05, ...word(payload.pagesAddress >> 4)], // add ax, pages
  [0x8e, 0xc0], // mov es, ax
  [0x26, 0x66, 0x89, 0x16, 0x00, 0x00], // mov es:[0], edx
  [0xf7, 0xc2, ...word(payload.printEvery - 1)], // test dx, 1fff
  [0x75, short("loop")], // jnz loop
  [0xb9, ...word(8)], // mov cx, 8
  [here("digit")],
  [0x66, 0xc1, 0xc2, 0x04], // rol edx, 4
  [0x88, 0xd0], // mov al, dl
  [0x24, 0x0f], // and al, 15
  [0x04, 0x30], // add al, '0'
  [0x3c, 0x3a], // cmp al, '9' + 1
  [0x72, 0x02], // jb over the next
  [0x04, 0x27], // add al, 'a' - '0' - 10
  [0xe8, near("put")], // call put
  [0xe2, short("digit")], // loop digit
  [0xb0, 0x0a], // mov al, newline
  [0xe8, near("put")], // call put
  [0xeb, short("loop")], // jmp loop
  [here("put")],
  [0x52], // push dx
  [0x88, 0xc4], // mov ah, al
  [0xba, ...word(0x3fd)], // mov dx, line status
  [here("busy")],
  [0xec], // in al, dx
  [0xa8, 0x20], // test al, transmitter empty
  [0x74, short("busy")], // jz busy
  [0xba, ...word(0x3f8)], // mov dx, data
  [0x88, 0xe0], // mov al, ah
  [0xee], // out dx, al
  [0x5a], // pop dx
  [0xc3], // ret
];

/** Bytes of the lines. Distances are counted from the end of the distance itself. */
function assemble(lines: readonly (readonly Piece[])[], origin: number): Uint8Array {
  const pieces = lines.flat();
  const places = new Map<string, number>();
  let at = origin;
  for (const piece of pieces) {
    if (typeof piece === "number") at += 1;
    else if ("here" in piece) places.set(piece.here, at);
    else at += piece.bytes;
  }
  const bytes: number[] = [];
  for (const piece of pieces) {
    if (typeof piece === "number") bytes.push(piece);
    else if ("near" in piece) {
      const target = places.get(piece.near);
      if (target === undefined) throw new RangeError(`No place is named "${piece.near}"`);
      const distance = target - (origin + bytes.length + piece.bytes);
      if (piece.bytes === 1 && (distance < -128 || distance > 127)) {
        throw new RangeError(`"${piece.near}" is too far away`);
      }
      bytes.push(...(piece.bytes === 1 ? [distance & 0xff] : word(distance & 0xffff)));
    }
  }
  return Uint8Array.from(bytes);
}
