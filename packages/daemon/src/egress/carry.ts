/**
 * Carries bytes between a connection inside and a socket outside, until both directions have ended.
 *
 * - I1 At most one piece of bytes waits in each direction, beside what the link and the kernel hold.
 * - I2 A side that ended in order ends only itself; one that broke off breaks the other off, so that nobody
 *   takes half of something for the whole.
 */
import { once } from "node:events";
import type { Socket } from "node:net";
import { breakOff } from "@perdure/protocol";

/** A connection inside, as the guest link has it. */
export interface InsideConnection {
  read(): Promise<Uint8Array | null>;
  write(bytes: Uint8Array): Promise<void>;
  end(): void;
  close(): void;
}

export interface Carried {
  readonly outBytes: number;
  readonly inBytes: number;
  /** Why it broke off; null: both sides ended in order. */
  readonly broken: string | null;
}

/**
 * Never rejects.
 *
 * @param first what was read of the inside before
 * @param passed called when bytes have passed
 * @param look what of the bytes from inside may go on now; it breaks the connection off by throwing
 */
export async function carry(
  inside: InsideConnection,
  outside: Socket,
  first: readonly Uint8Array[],
  passed: () => void,
  look: (bytes: Uint8Array) => Uint8Array = (bytes) => bytes,
): Promise<Carried> {
  let outBytes = 0;
  let inBytes = 0;
  let broken: string | null = null;
  const broke = (error: unknown): void => {
    broken ??= error instanceof Error ? error.message : String(error);
    inside.close();
    breakOff(outside);
  };
  const gone = new AbortController();
  outside.once("close", () => gone.abort(new Error("The connection outside was closed")));
  outside.on("error", broke);
  const put = async (said: Uint8Array): Promise<void> => {
    const bytes = look(said);
    if (bytes.length === 0) return;
    outBytes += bytes.length;
    passed();
    if (!outside.write(bytes)) await once(outside, "drain", { signal: gone.signal });
  };
  const out = async (): Promise<void> => {
    for (const bytes of first) await put(bytes);
    for (let bytes = await inside.read(); bytes !== null; bytes = await inside.read()) {
      await put(bytes);
    }
    outside.end();
  };
  const back = async (): Promise<void> => {
    // Whoever has said all still listens.
    const pieces: AsyncIterable<Uint8Array> = outside.iterator({ destroyOnReturn: false });
    for await (const bytes of pieces) {
      inBytes += bytes.length;
      passed();
      await inside.write(bytes);
    }
    inside.end();
  };
  await Promise.all([out().catch(broke), back().catch(broke)]);
  if (!gone.signal.aborted) await once(outside, "close");
  return { outBytes, inBytes, broken };
}
