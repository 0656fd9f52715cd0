/** The harness itself: what does not fit is seen. A harness that passes everything would hold nothing. */
import { expect, it } from "vitest";
import { violations } from "../../../../test/contract/api/conformance.ts";
import type { Exchange } from "../../../../test/contract/api/conformance.ts";

const health = { version: "1", pid: 1, startedAtMs: 1, home: "/", url: null, authorityFile: null };
const good: Exchange = {
  method: "GET",
  url: "/v1/health",
  requestBody: "",
  status: 200,
  headers: { "content-type": "application/json; charset=utf-8" },
  body: JSON.stringify(health),
};
const lines = "application/x-ndjson";
const output = "/v1/agents/a1/processes/1/output";

it.each<[string, Partial<Exchange>, RegExp | null]>([
  ["what fits", {}, null],
  ["a field too many", { body: JSON.stringify({ ...health, secret: 1 }) }, /additional properties/],
  ["a field too few", { body: JSON.stringify({ ...health, pid: undefined }) }, /pid/],
  ["a wrong type", { body: JSON.stringify({ ...health, pid: "1" }) }, /integer/],
  ["another status", { status: 201 }, /no such status/],
  ["another media type", { headers: { "content-type": "text/html" } }, /media type text\/html/],
  ["an unknown route", { url: "/v1/unknown" }, /no such operation/],
  ["a query that was taken", { url: "/v1/health?x=1" }, /parameter x/],
  ["a body that was taken", { requestBody: '{"x":1}' }, /no request body/],
  ["a name that was taken", { url: "/v1/agents/A_1/report" }, /path parameter agent/],
  [
    "a body that was taken though it does not fit",
    { method: "POST", url: "/v1/agents", status: 201, requestBody: '{"name":1}' },
    /name must be string/,
  ],
  [
    "a body where there is none",
    { method: "PUT", url: "/v1/agents/a1/files?path=/a", status: 204 },
    /body/,
  ],
  ["a header that is missing", { url: "/v1/agents/a1/files?path=/a" }, /perdure-file-size/],
  [
    "a part of a stream",
    { url: output, headers: { "content-type": lines }, body: '{"type":"exit"}\n' },
    /part does not fit/,
  ],
  [
    "a stream that broke off",
    {
      url: output,
      headers: { "content-type": lines },
      body: '{"type":"cut","from":1,"to":2}\n{"ty',
    },
    null,
  ],
  ["an error of another shape", { status: 404, body: '{"error":"x"}' }, /error does not fit/],
  [
    "an error with the status of another",
    { status: 404, body: JSON.stringify({ code: "internal", message: "x", retry: "check" }) },
    /internal has status 500/,
  ],
])("sees %s", (_title, part, expected) => {
  const found = violations({ ...good, ...part }).join("\n");
  if (expected === null) expect(found).toBe("");
  else expect(found).toMatch(expected);
});
