/**
 * Looks at every request of a connection that was let pass by its method: HTTP/1 in the clear, one after another. Strict:
 * what two readers could read in two ways is refused, so that no server sees a request in it that was not looked at.
 *
 * - I1 Not a byte of a request is given on before its whole head was read and its method allowed.
 * - I2 What is held is bounded: a head of HEAD_BYTES_MAX, a line of a chunk.
 */

export class RequestRefused extends Error {
  override readonly name = "RequestRefused";
}

const HEAD_BYTES_MAX = 65_536;
const CHUNK_LINE_MAX = 64;
const REQUEST_LINE = /^([A-Z]{1,20}) [\x21-\x7e]+ HTTP\/1\.([01])$/;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/;
/** Methods that are for reading alone (RFC 9110, 9.2.1). */
const SAFE: ReadonlySet<string> = new Set(["GET", "HEAD", "OPTIONS"]);

/** What comes next. */
type State =
  | { readonly in: "head" | "trailers" }
  | { readonly in: "chunk-line" | "chunk-end" }
  | { readonly in: "body" | "chunk"; readonly left: number };

export class RequestGuard {
  readonly #isAllowed: (method: string) => boolean;
  #state: State = { in: "head" };
  #held = Buffer.alloc(0);
  #onlyRead = true;

  constructor(isAllowed: (method: string) => boolean) {
    this.#isAllowed = isAllowed;
  }

  /** Whether no request asked for more than to read. */
  get onlyRead(): boolean {
    return this.#onlyRead;
  }

  /** What of it may go on, and of what was held. @throws RequestRefused; nothing may go on after it */
  push(bytes: Uint8Array): Uint8Array {
    let rest = this.#held.length === 0 ? Buffer.from(bytes) : Buffer.concat([this.#held, bytes]);
    const whole = rest;
    let passed = 0;
    for (let taken = this.#take(rest); taken > 0 && rest.length > 0; taken = this.#take(rest)) {
      passed += taken;
      rest = rest.subarray(taken);
    }
    this.#held = rest;
    return whole.subarray(0, passed);
  }

  /** Bytes of `rest` that are a whole part; 0: more are needed. */
  #take(rest: Buffer): number {
    const state = this.#state;
    switch (state.in) {
      case "head":
        return this.#takeLines(rest, "\r\n\r\n", HEAD_BYTES_MAX, (text) =>
          this.#beginRequest(text),
        );
      case "body":
      case "chunk": {
        const taken = Math.min(state.left, rest.length);
        const left = state.left - taken;
        const after: State = state.in === "chunk" ? { in: "chunk-end" } : { in: "head" };
        this.#state = left > 0 ? { in: state.in, left } : after;
        return taken;
      }
      case "chunk-line":
        return this.#takeLines(rest, "\r\n", CHUNK_LINE_MAX, chunkOf);
      case "chunk-end":
        return this.#takeLines(rest, "\r\n", 2, () => ({ in: "chunk-line" }));
      case "trailers":
        if (rest.subarray(0, 2).toString("latin1") === "\r\n") {
          this.#state = { in: "head" };
          return 2;
        }
        return this.#takeLines(rest, "\r\n\r\n", HEAD_BYTES_MAX, (text) => {
          headersOf(text.split("\r\n"));
          return { in: "head" };
        });
    }
  }

  #takeLines(rest: Buffer, end: string, max: number, read: (text: string) => State): number {
    const at = rest.indexOf(end, 0, "latin1");
    if (at < 0 ? rest.length > max : at + end.length > max) throw refused("A part is too long");
    if (at < 0) return 0;
    this.#state = read(rest.toString("latin1", 0, at));
    return at + end.length;
  }

  #beginRequest(text: string): State {
    const [first = "", ...lines] = text.split("\r\n");
    const [, method = "", minor = ""] = REQUEST_LINE.exec(first) ?? [];
    if (method === "") throw refused("A request does not begin as one");
    if (!this.#isAllowed(method)) throw new RequestRefused(`No rule allows ${method}`);
    if (!SAFE.has(method)) this.#onlyRead = false;
    const headers = headersOf(lines);
    if (method === "CONNECT" || headers.has("upgrade")) {
      throw refused("What follows CONNECT or an upgrade is no request");
    }
    const [encoding, length] = [headers.get("transfer-encoding"), headers.get("content-length")];
    if (encoding !== undefined) {
      const isPlain = encoding.toLowerCase() === "chunked" && length === undefined;
      if (!isPlain || minor !== "1") throw refused("A body has no certain end");
      return { in: "chunk-line" };
    }
    if (length === undefined) return { in: "head" };
    if (!/^[0-9]{1,15}$/.test(length)) throw refused("A body has no certain end");
    return Number(length) === 0 ? { in: "head" } : { in: "body", left: Number(length) };
  }
}

function chunkOf(text: string): State {
  if (!/^[0-9a-fA-F]{1,12}$/.test(text)) throw refused("A chunk has no certain end");
  const left = parseInt(text, 16);
  return left === 0 ? { in: "trailers" } : { in: "chunk", left };
}

/** By names in lower case. None that says where a body ends is there twice. */
function headersOf(lines: readonly string[]): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of lines) {
    const [, name = "", value = ""] = HEADER_LINE.exec(line) ?? [];
    const key = name.toLowerCase();
    if (key === "") throw refused("A header is none");
    const isTwice = headers.has(key);
    if (isTwice && (key === "content-length" || key === "transfer-encoding")) {
      throw refused("A body has no certain end");
    }
    headers.set(key, value.trimEnd());
  }
  return headers;
}

function refused(why: string): RequestRefused {
  return new RequestRefused(`${why}, and a rule asks for the method of each request`);
}
