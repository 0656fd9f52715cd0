/** Bytes on their way between this host and a daemon. */
import { localError } from "@perdure/sdk/local-error";

/** The same bytes; `told` hears how many there were so far. */
export async function* counted(
  bytes: AsyncIterable<Uint8Array>,
  told: (count: number) => void,
): AsyncGenerator<Uint8Array> {
  let count = 0;
  for await (const piece of bytes) {
    count += piece.length;
    told(count);
    yield piece;
  }
}

/** The same bytes, of something on this host. @throws its errors with `name` in them */
export async function* readHere(
  name: string,
  bytes: AsyncIterable<unknown>,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const piece of bytes) yield piece as Uint8Array;
  } catch (error) {
    throw localError(`read ${name} on this host`, error);
  }
}
