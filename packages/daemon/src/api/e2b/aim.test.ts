import fc from "fast-check";
import { expect, it } from "vitest";
import { aimOf, SERVICE_PORT } from "./aim.ts";
import { isE2bPath } from "./e2b-table.ts";

const id = "01m8p6qjrfr63s5qjtpe0jaj5y";
const aim = (url: string, headers: Record<string, string> = {}) =>
  aimOf({ url, headers }, isE2bPath);

it("tells our own API, E2B's, and a port of a sandbox apart, by headers, host and path", () => {
  expect(aim("/v1/agents")).toEqual({ kind: "native" });
  expect(aim("/v2/nothing")).toEqual({ kind: "native" });
  for (const path of ["/sandboxes", "/v2/sandboxes/x/connect?a=b", "/health", "/templates/x"]) {
    expect(aim(path)).toEqual({ kind: "e2b" });
  }
  expect(aim("/sandboxes-else")).toEqual({ kind: "native" });
  const named = { "e2b-sandbox-id": "anything" };
  expect(aim("/health", named)).toEqual({
    kind: "sandbox",
    sandbox: "anything",
    port: SERVICE_PORT,
  });
  const host = { host: `3000-${id.toUpperCase()}.sandboxes.example:7070` };
  expect(aim("/v1/agents", host)).toEqual({ kind: "sandbox", sandbox: id, port: 3000 });
  expect(aim("/", { host: `70000-${id}.localhost` })).toMatchObject({ port: 0 });
  expect(aim("/", { ...named, "e2b-sandbox-port": "-1" })).toMatchObject({ port: 0 });
  expect(aim("/", { host: `${id}.localhost` })).toEqual({ kind: "native" });
  expect(aim("/files?path=x&signature=v1_x")).toEqual({ kind: "signed" });
  expect(aim("/files?path=x")).toEqual({ kind: "native" });
});

it("makes something of whatever is sent", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), (url, host, port) => {
      const { kind } = aim(url, { host, "e2b-sandbox-port": port });
      expect(["native", "e2b", "sandbox", "signed"]).toContain(kind);
    }),
  );
});
