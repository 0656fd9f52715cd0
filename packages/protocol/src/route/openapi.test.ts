import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { expect, it } from "vitest";
import { openApiDocument, openApiPath } from "./openapi.ts";
import type { ApiRoute } from "./route.ts";
import { answerSchema, pathNames, pathOf } from "./route.ts";
import { routeAreas, routes } from "./table.ts";

const entries = Object.entries<ApiRoute>(routes);

it("is a valid OpenAPI 3.1 document", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(structuredClone(openApiDocument("1.2.3")));
  expect(errors).toBeUndefined();
  expect(valid).toBe(true);
  expect(validator.version).toBe("3.1");
  const broken = structuredClone(openApiDocument("1.2.3")) as { paths: Record<string, unknown> };
  broken.paths["no-slash"] = { get: { responses: 1 } };
  expect((await new Validator().validate(broken)).valid).toBe(false);
});

it("has only schemas that a strict validator compiles, and refers only to what is there", () => {
  const { components } = openApiDocument("1.2.3") as { components: { schemas: object } };
  const ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
  ajv.addVocabulary(["components"]);
  ajv.addSchema({ $id: "api", components });
  for (const name of Object.keys(components.schemas)) {
    expect(() => ajv.compile({ $ref: `api#/components/schemas/${name}` }), name).not.toThrow();
  }
  const text = JSON.stringify(openApiDocument("1.2.3"));
  for (const [, name = ""] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
    expect(components.schemas).toHaveProperty(name);
  }
});

it("has every route of the table once, under its operation", () => {
  const { paths } = openApiDocument("1.2.3") as {
    paths: Record<string, Record<string, { operationId: string }>>;
  };
  const documented = Object.entries(paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, { operationId }]) => `${operationId} ${method} ${path}`),
  );
  const table = entries.map(
    ([operation, { method, path }]) => `${operation} ${method.toLowerCase()} ${openApiPath(path)}`,
  );
  expect(documented.sort()).toEqual(table.sort());
  const ofAreas = Object.values(routeAreas).flatMap((area) => Object.keys(area));
  expect(ofAreas.sort()).toEqual(Object.keys(routes).sort());
});

it.each(entries)("says of %s all that must be said", (_operation, route) => {
  expect(Object.keys(route.params?.shape ?? {}).sort()).toEqual([...pathNames(route.path)].sort());
  expect(route.summary).toMatch(/^[A-Z].*\.$/);
  if (route.mutates) expect(route.scope).not.toBe("read");
  // A GET that is sent again by a proxy or a browser must change nothing.
  if (route.method === "GET") expect(route.mutates).toBe(false);
  if (route.status === 204 || route.status === 101) expect(route.answers).toEqual([]);
});

it("fills a path with its names, escaped", () => {
  const path = pathOf(routes.drop, { agent: "a/1", checkpoint: "x?" });
  expect(path).toBe("/v1/agents/a%2F1/checkpoints/x%3F");
  expect(() => pathOf(routes.drop, { agent: "a" })).toThrow(/checkpoint/);
  expect(() => answerSchema(routes.signal)).toThrow(/no JSON/);
});
