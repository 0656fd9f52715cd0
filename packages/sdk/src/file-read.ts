/** A file that is being read from an agent. */
import { fileHeaders } from "@perdure/protocol";
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
  /** The whole content. */
  collect(): Promise<Uint8Array>;
  /** The whole content as UTF-8. */
  text(): Promise<string>;
}

/** What a file begins with is part of it. */
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export function createFileRead({ headers, bytes }: StreamedAnswer): FileRead {
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
