/** A file that is being read from an agent. */
import { fileHeaders, PerdureError } from "@perdure/protocol";
import { concatBytes } from "./bytes.ts";
import type { StreamedAnswer } from "./transport.ts";

/** About the file as it was opened. */
export interface FileFacts {
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
}

/** Consume `bytes` once, or call one of the collectors; leaving the loop ends the transfer. */
export interface FileRead {
  readonly facts: FileFacts;
  readonly bytes: AsyncIterable<Uint8Array>;
  /** All of them. */
  collect(): Promise<Uint8Array>;
  /** All of them as UTF-8. */
  text(): Promise<string>;
}

/** What a file begins with is part of it. */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** `ranged`: only a part was asked for. */
export function createFileRead(answer: StreamedAnswer, ranged: boolean): FileRead {
  const { headers } = answer;
  const bytes = ranged ? wholeRange(answer) : answer.bytes;
  const collect = async (): Promise<Uint8Array> => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of bytes) chunks.push(chunk);
    return concatBytes(chunks);
  };
  const field = (name: string, radix = 10): number => parseInt(String(headers[name]), radix);
  return {
    facts: {
      size: field(fileHeaders.size),
      mode: field(fileHeaders.mode, 8),
      uid: field(fileHeaders.uid),
      gid: field(fileHeaders.gid),
      mtimeMs: field(fileHeaders.mtimeMs),
    },
    bytes,
    collect,
    text: async () => decoder.decode(await collect()),
  };
}

/** @throws `size_mismatch` after the last byte, where there should be more */
async function* wholeRange({ headers, bytes }: StreamedAnswer): AsyncGenerator<Uint8Array> {
  const [, first, last] = /^bytes (\d+)-(\d+)\//.exec(String(headers["content-range"])) ?? [];
  if (first === undefined) {
    throw new PerdureError("not_supported", "The daemon answered the whole file for a part of it", {
      hint: "Use the client and the daemon of one release.",
    });
  }
  let left = Number(last) - Number(first) + 1;
  for await (const chunk of bytes) {
    left -= chunk.length;
    yield chunk;
  }
  if (left === 0) return;
  throw new PerdureError("size_mismatch", "The file became shorter while it was read");
}
