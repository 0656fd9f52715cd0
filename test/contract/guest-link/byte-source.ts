/** Bytes as a file's source hands them over: in pieces, or broken off. */

export function pattern(bytes: number): Buffer {
  const whole = Buffer.alloc(bytes);
  for (let i = 0; i < bytes; i++) whole[i] = (i * 7 + (i >> 8)) & 255;
  return whole;
}

export async function* pieces(whole: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < whole.length; at += size) {
    yield whole.subarray(at, at + size);
    await Promise.resolve();
  }
}

export async function* failing(whole: Uint8Array): AsyncGenerator<Uint8Array> {
  yield* pieces(whole, 10_000);
  throw new Error("The source broke");
}

export async function all(source: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source) pieces.push(piece);
  return pieces;
}
