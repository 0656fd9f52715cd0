/** Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) whose data is JSON. */
import { splitLines } from "./json-stream.ts";

export interface ServerSentEvent {
  /** Null where the block has none. */
  readonly id: string | null;
  /** Undefined where the block has none, or it is no JSON. */
  readonly data: unknown;
}

/**
 * Ends where the stream does; a block that is not whole is dropped. Aborts `silent` where nothing comes
 * for `silenceMs`: whoever made the stream gave it that signal.
 */
export async function* readServerSentEvents(
  chunks: AsyncIterable<Uint8Array>,
  silenceMs: number,
  silent: AbortController,
): AsyncGenerator<ServerSentEvent> {
  let timer = setTimeout(() => silent.abort(), silenceMs);
  let id: string | null = null;
  let data: string[] = [];
  try {
    for await (const line of splitLines(chunks)) {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), silenceMs);
      if (line === "") {
        yield { id, data: parseJson(data.join("\n")) };
        id = null;
        data = [];
        continue;
      }
      const [, field = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
      if (field === "id") id = value;
      if (field === "data") data.push(value);
    }
  } finally {
    clearTimeout(timer);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
