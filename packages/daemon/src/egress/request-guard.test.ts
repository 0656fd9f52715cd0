import { describe, expect, test } from "vitest";
import { RequestGuard } from "./request-guard.ts";

const read = (): RequestGuard => new RequestGuard((method) => method === "GET" || method === "PUT");

/** What passes when it comes byte by byte, and in one piece: the same. */
function passes(text: string): string {
  const [whole, slow] = [read(), read()];
  const at = (guard: RequestGuard, bytes: Buffer): string =>
    Buffer.from(guard.push(bytes)).toString("latin1");
  const bytes = Buffer.from(text, "latin1");
  const passed = at(whole, bytes);
  const one = [...bytes].map((_, i) => at(slow, bytes.subarray(i, i + 1))).join("");
  expect(one).toBe(passed);
  return passed;
}

const get = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
const put = (head: string, body: string): string => `PUT /b HTTP/1.1\r\n${head}\r\n\r\n${body}`;

describe("what is allowed passes as it is", () => {
  test.each([
    ["requests one after another", get + get],
    ["a body of known length", put("Content-Length: 5", "POST ") + get],
    ["an empty body", put("Content-Length: 0", "") + get],
    [
      "chunks",
      put("Transfer-Encoding: chunked", "5\r\nPOST \r\n1A\r\n" + "x".repeat(26) + "\r\n0\r\n\r\n") +
        get,
    ],
    ["trailers", put("Transfer-Encoding: Chunked", "0\r\nDigest: x\r\n\r\n") + get],
    [
      "headers twice that say nothing of the body",
      "GET / HTTP/1.0\r\nAccept: a\r\nAccept: b\r\n\r\n",
    ],
  ])("%s", (_, text) => {
    expect(passes(text)).toBe(text);
  });

  test("and nothing of a request before its whole head", () => {
    expect(passes(`${get}GET /b HTTP/1.1\r\nHost: x\r\n`)).toBe(get);
  });

  test("and is known to have only read, or not", () => {
    const guard = read();
    guard.push(Buffer.from(get));
    expect(guard.onlyRead).toBe(true);
    guard.push(Buffer.from(put("Content-Length: 1", "x")));
    expect(guard.onlyRead).toBe(false);
  });
});

describe("is refused", () => {
  test.each([
    ["another method", "POST / HTTP/1.1\r\n\r\n"],
    ["another method behind one that is allowed", `${get}POST / HTTP/1.1\r\n\r\n`],
    ["another method behind a body", put("Content-Length: 2", "xxDELETE / HTTP/1.1\r\n\r\n")],
    ["no method", "get / HTTP/1.1\r\n\r\n"],
    ["an empty line first", `\r\n${get}`],
    ["another version", "GET / HTTP/2.0\r\n\r\n"],
    ["a line without a return", "GET / HTTP/1.1\nHost: x\r\n\r\n"],
    ["a header that goes on", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n"],
    ["a space before the colon", "GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n"],
    ["a NUL in a header", "GET / HTTP/1.1\r\nA: \0\r\n\r\n"],
    ["two lengths", put("Content-Length: 1\r\ncontent-length: 2", "x")],
    ["a list of lengths", put("Content-Length: 1, 1", "x")],
    ["a signed length", put("Content-Length: +1", "x")],
    ["a length and chunks", put("Content-Length: 1\r\nTransfer-Encoding: chunked", "x")],
    ["another encoding", put("Transfer-Encoding: gzip, chunked", "x")],
    ["chunks in HTTP/1.0", "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"],
    ["an extension of a chunk", put("Transfer-Encoding: chunked", "1;a=b\r\nx\r\n0\r\n\r\n")],
    [
      "a chunk that is longer than it says",
      put("Transfer-Encoding: chunked", "1\r\nxx\r\n0\r\n\r\n"),
    ],
    ["an upgrade", "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"],
    ["a head without end", `GET / HTTP/1.1\r\nA: ${"x".repeat(70_000)}`],
  ])("%s", (_, text) => {
    const bytes = Buffer.from(text, "latin1");
    expect(() => read().push(bytes)).toThrow();
    const slow = read();
    expect(() => {
      for (let i = 0; i < bytes.length; i += 1000) slow.push(bytes.subarray(i, i + 1000));
    }).toThrow();
  });
});
