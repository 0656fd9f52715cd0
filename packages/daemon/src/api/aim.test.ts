import fc from "fast-check";
import { expect, it } from "vitest";
import { aimOf } from "./aim.ts";

const id = "01m8p6qjrfr63s5qjtpe0jaj5y";
const aim = (url: string, headers: Record<string, string> = {}) =>
  aimOf({ url, headers }, "localhost");

it("tells our own API, E2B's, services and ports apart, by host, headers and path", () => {
  expect(aim("/v1/agents")).toEqual({ kind: "native" });
  expect(aim("/v2/nothing")).toEqual({ kind: "native" });
  for (const path of ["/sandboxes", "/v2/sandboxes/x/connect?a=b", "/health", "/templates/x"]) {
    expect(aim(path)).toEqual({ kind: "e2b" });
  }
  expect(aim("/sandboxes-else")).toEqual({ kind: "native" });
  expect(aim("/v1/agents", { host: "API.localhost:7070" })).toEqual({ kind: "e2b" });
  const named = { "e2b-sandbox-id": "anything" };
  expect(aim("/health", named)).toEqual({ kind: "services", sandbox: "anything" });
  expect(aim("/health", { ...named, "e2b-sandbox-port": "49983" })).toEqual({
    kind: "services",
    sandbox: "anything",
  });
  expect(aim("/", { ...named, "e2b-sandbox-port": "80" })).toEqual({
    ...{ kind: "port", agent: null, port: 80, sandbox: "anything" },
  });
  expect(aim("/", { "e2b-sandbox-id": `${id}-old`, "e2b-sandbox-port": "-1" })).toEqual({
    ...{ kind: "port", agent: `ag_${id}`, port: 0, sandbox: `${id}-old` },
  });
  const host = { host: `3000-${id.toUpperCase()}.localhost:7070` };
  const port = { kind: "port", agent: `ag_${id}`, port: 3000, sandbox: null };
  expect(aim("/v1/agents", host)).toEqual(port);
  expect(aim("/", { host: `49983-${id}.localhost` })).toEqual({ kind: "services", sandbox: id });
  for (const none of [`70000-${id}.localhost`, `${id}.localhost`, `80-${id}.example`]) {
    expect(aim("/", { host: none })).toEqual({ kind: "native" });
  }
  expect(aim("/files?path=x&signature=v1_x")).toEqual({ kind: "signed" });
  expect(aim("/files?path=x")).toEqual({ kind: "native" });
});

it("lets no header lead from a preview host to somewhere else", () => {
  const headers = { host: `80-${id}.localhost`, "e2b-sandbox-id": "other" };
  expect(aim("/sandboxes", headers)).toMatchObject({ kind: "port", agent: `ag_${id}`, port: 80 });
});

it("makes something of whatever is sent", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), (url, host, port) => {
      const { kind } = aim(url, { host, "e2b-sandbox-id": host, "e2b-sandbox-port": port });
      expect(["services", "port"]).toContain(kind);
    }),
  );
});
