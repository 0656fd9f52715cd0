/** Newline-delimited JSON, as the daemon streams it. */
import type { z } from "zod";

/** Values of `chunks`; those that a newer daemon may send and nobody here knows are left out. */
export async function* jsonValues<S extends z.ZodType>(
  schema: S,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<z.output<S>> {
  for await (const line of splitLines(chunks)) {
    const parsed = schema.safeParse(JSON.parse(line));
    if (parsed.success) yield parsed.data;
  }
}

export async function* splitLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let begun = "";
  for await (const chunk of chunks) {
    const parts = (begun + decoder.decode(chunk, { stream: true })).split("\n");
    begun = parts.pop() ?? "";
    yield* parts;
  }
}
