import { expect, test } from "vitest";
import { methodOf } from "./first-bytes.ts";

test.each([
  ["", undefined],
  ["G", undefined],
  ["DELETE", undefined],
  ["GET / HTTP/1.1\r\n", "GET"],
  ["PROPFIND /", "PROPFIND"],
  ["get / HTTP/1.1", null],
  [" GET /", null],
  ["SSH-2.0-OpenSSH", null],
  ["\x16\x03\x01\x02", null],
  ["GET\t/", null],
  ["A".repeat(20), undefined],
  ["A".repeat(21), null],
  [`${"A".repeat(20)} /`, "A".repeat(20)],
  ["\n", ""],
  ["\r\nGET / HTTP/1.1", ""],
] as const)("%j: %s", (text, method) => {
  expect(methodOf(Buffer.from(text, "latin1"))).toBe(method);
});
