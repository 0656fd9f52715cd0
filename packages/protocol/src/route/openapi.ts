/**
 * The route table as an OpenAPI 3.1 document: served at `GET /v1/openapi.json` and written to
 * docs/reference/openapi.json.
 *
 * Schemas stand for what is on the wire, which is the side that a zod schema takes in. An answer's
 * objects are open: a later daemon may say more. What zod checks with code (lengths in bytes, NUL
 * characters, sums) is not in the document: a request that fits it may still be `bad_request`.
 */
import { z } from "zod";
import {
  agentStateSchema,
  agentViewSchema,
  failureSchema,
  machineShapeSchema,
  onCrashSchema,
} from "../agent.ts";
import {
  aliveSchema,
  apiLimits,
  checkpointViewSchema,
  doctorReportSchema,
  errorBodySchema,
  exitSchema,
  healthSchema,
  hotViewSchema,
  letOutSchema,
  metricsSchema,
  outputEventSchema,
  processViewSchema,
} from "../api.ts";
import {
  connectionViewSchema,
  egressPolicySchema,
  egressRuleSchema,
  egressViewSchema,
} from "../egress.ts";
import { folderEventSchema, pathFactsSchema, watchEventSchema } from "../file.ts";
import { imageConfigSchema, imageEventSchema, imageViewSchema, recipeSchema } from "../image.ts";
import { verifiedPartSchema, verifyEventSchema } from "../verify.ts";
import { cutSchema, wakeReportSchema } from "../wake-report.ts";
import { agentEventSchema, eventGapSchema } from "../event.ts";
import { keyViewSchema } from "../key.ts";
import { pathNames, takesKey } from "./route.ts";
import type { ApiRoute, Content } from "./route.ts";
import { holdSchema } from "../rest.ts";
import { whySchema } from "../why.ts";
import { routeAreas, routes } from "./table.ts";

/** Schemas with a name of their own in the document; others are named after their operation. */
const components: Readonly<Record<string, z.ZodType>> = {
  AgentView: agentViewSchema,
  AgentState: agentStateSchema,
  MachineShape: machineShapeSchema,
  OnCrash: onCrashSchema,
  Failure: failureSchema,
  LetOut: letOutSchema,
  WakeReport: wakeReportSchema,
  Cut: cutSchema,
  CheckpointView: checkpointViewSchema,
  ProcessView: processViewSchema,
  Exit: exitSchema,
  OutputEvent: outputEventSchema,
  PathFacts: pathFactsSchema,
  FolderEvent: folderEventSchema,
  WatchEvent: watchEventSchema,
  VerifyEvent: verifyEventSchema,
  VerifiedPart: verifiedPartSchema,
  ImageView: imageViewSchema,
  ImageConfig: imageConfigSchema,
  ImageEvent: imageEventSchema,
  Recipe: recipeSchema,
  DoctorReport: doctorReportSchema,
  EgressPolicy: egressPolicySchema,
  EgressRule: egressRuleSchema,
  EgressView: egressViewSchema,
  ConnectionView: connectionViewSchema,
  Hold: holdSchema,
  HotView: hotViewSchema,
  Why: whySchema,
  AgentEvent: agentEventSchema,
  EventGap: eventGapSchema,
  KeyView: keyViewSchema,
  Health: healthSchema,
  Alive: aliveSchema,
  Metrics: metricsSchema,
  Error: errorBodySchema,
};

/** JSON, as in a document. */
export type Json = Readonly<Record<string, unknown>>;

/** @param version of the daemon that serves the API */
export function openApiDocument(version: string): Json {
  const names = schemaNames();
  return {
    openapi: "3.1.1",
    info: {
      title: "Perdure",
      version,
      summary: "Every AI agent gets its own persistent computer.",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    tags: Object.keys(routeAreas).map((name) => ({ name })),
    paths: paths(names),
    security: [{ ApiKey: [] }],
    components: {
      securitySchemes: { ApiKey: apiKeyScheme },
      schemas: schemas(names),
      parameters: { IdempotencyKey: idempotencyKey },
      headers: { IdempotencyReplayed: idempotencyReplayed },
    },
  };
}

const apiKeyScheme: Json = {
  type: "http",
  scheme: "bearer",
  description: "A key that `perdure key create` made. Over the unix socket none is asked for.",
};

const idempotencyKey: Json = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description: `The same request with the same key is carried out once, and its answer is given again for ${apiLimits.idempotencyKeptMs / 3_600_000} hours.`,
  schema: { type: "string", pattern: "^[\\x21-\\x7e]{1,257}$" },
};

const idempotencyReplayed: Json = {
  description: "The answer to an earlier request with the same Idempotency-Key.",
  schema: { const: "true" },
};

/** `/v1/agents/:agent` → `/v1/agents/{agent}` */
export function openApiPath(path: string): string {
  return path.replace(/:([a-z]+)/g, "{$1}");
}

type Names = ReadonlyMap<z.ZodType, string>;

function schemaNames(): Names {
  const names = new Map(Object.entries(components).map(([name, schema]) => [schema, name]));
  for (const [operation, { body, answers }] of entries()) {
    const base = operation.charAt(0).toUpperCase() + operation.slice(1);
    name(body, `${base}Request`);
    for (const answer of answers) {
      const isJson = answer.media === "application/json";
      name(answer, isJson ? `${base}Answer` : `${base}Event`);
    }
  }
  return names;

  function name(content: Content | undefined, as: string): void {
    const schema = content?.schema;
    if (schema != null && !names.has(schema)) names.set(schema, as);
  }
}

function entries(): [string, ApiRoute][] {
  return Object.entries(routes);
}

function schemas(names: Names): Json {
  const registry = z.registry<{ id: string }>();
  for (const [schema, id] of names) registry.add(schema, { id });
  const converted = z.toJSONSchema(registry, { io: "input", uri: reference });
  return Object.fromEntries(
    Object.entries(converted.schemas).map(([id, schema]) => [id, tidied(schema as Json)]),
  );
}

const reference = (name: string): string => `#/components/schemas/${name}`;

/** Formats that only zod knows; it gives a pattern beside each. */
const formatsOfZod = new Set(["starts_with", "ends_with", "includes", "lowercase", "uppercase"]);

/** Without what the document says once, and without the bounds of every integer. */
function tidied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(tidied);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key, entry]) => key !== "$schema" && !(key === "$id" && isReference(entry)))
      .filter(([key, entry]) => !(key === "format" && formatsOfZod.has(String(entry))))
      .filter(([key, entry]) => !(key === "minimum" && entry === Number.MIN_SAFE_INTEGER))
      .filter(([key, entry]) => !(key === "maximum" && entry === Number.MAX_SAFE_INTEGER))
      .map(([key, entry]) => [key, tidied(entry)]),
  );
}

function isReference(value: unknown): boolean {
  return typeof value === "string" && value.startsWith("#/");
}

function paths(names: Names): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const [area, routesOfArea] of Object.entries(routeAreas)) {
    for (const [operation, route] of Object.entries<ApiRoute>(routesOfArea)) {
      const item = (paths[openApiPath(route.path)] ??= {});
      item[route.method.toLowerCase()] = operationOf(operation, area, route, names);
    }
  }
  return paths;
}

function operationOf(operation: string, area: string, route: ApiRoute, names: Names): Json {
  const { body, summary, mutates, scope } = route;
  const parameters = [
    ...parametersOf(route.params, "path", pathNames(route.path)),
    ...parametersOf(route.query, "query"),
    ...parametersOf(route.headers, "header"),
    ...(takesKey(route) ? [{ $ref: "#/components/parameters/IdempotencyKey" }] : []),
    ...(route.ranges === undefined ? [] : [rangeParameter]),
  ];
  return {
    operationId: operation,
    tags: [area],
    summary,
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined ? {} : { requestBody: requestBody(body, names) }),
    responses: {
      [String(route.status)]: success(route, names),
      ...(route.ranges === undefined ? {} : { 206: partial(route, names) }),
      default: { description: "A refusal or failure.", content: contentOf(errorContent, names) },
    },
    ...(scope === "none" ? { security: [{}, { ApiKey: [] }] } : {}),
    "x-perdure-scope": scope,
    "x-perdure-mutates": mutates,
  };
}

const rangeParameter = {
  name: "range",
  in: "header",
  required: false,
  description: "One range of bytes, as in `bytes=0-1023`, `bytes=1024-` or `bytes=-1024`.",
  schema: { type: "string" },
};

function partial(route: ApiRoute, names: Names): Json {
  const { headers, ...whole } = success(route, names);
  const range = {
    required: true,
    schema: { type: "string", pattern: "^bytes [0-9]+-[0-9]+/[0-9]+$" },
  };
  const description = "The bytes that were asked for.";
  return { ...whole, description, headers: { ...(headers as Json), "content-range": range } };
}

const errorContent: Content = { media: "application/json", schema: errorBodySchema };

function requestBody(body: Content, names: Names): Json {
  // A body whose fields all have defaults may be left out.
  const required = body.schema !== null && !body.schema.safeParse({}).success;
  return { required, content: contentOf(body, names) };
}

function success(route: ApiRoute, names: Names): Json {
  const { status, answers, answerHeaders } = route;
  const contents = answers.map((answer) => contentOf(answer, names));
  const headers = {
    ...(answerHeaders === undefined ? {} : headersOf(answerHeaders)),
    ...(takesKey(route)
      ? { "Idempotency-Replayed": { $ref: "#/components/headers/IdempotencyReplayed" } }
      : {}),
  };
  return {
    description: descriptions[status],
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    ...(contents.length === 0 ? {} : { content: Object.assign({}, ...contents) as Json }),
  };
}

const descriptions: Readonly<Record<ApiRoute["status"], string>> = {
  101: "The connection is a WebSocket from here on.",
  200: "Done.",
  201: "Made.",
  202: "Begun.",
  204: "Done; there is nothing to say.",
};

/**
 * A stream's schema is of one of its parts, which OpenAPI 3.1 has no word for: the body is told as text
 * there, and the part in `x-perdure-part`.
 */
function contentOf({ media, schema }: Content, names: Names): Json {
  if (schema === null) return { [media]: {} };
  const name = names.get(schema);
  if (name === undefined) throw new Error(`A schema of ${media} has no name`);
  const $ref = reference(name);
  if (media === "application/json") return { [media]: { schema: { $ref } } };
  return { [media]: { schema: { type: "string" }, "x-perdure-part": { $ref } } };
}

function parametersOf(
  schema: z.ZodObject | undefined,
  place: "header" | "path" | "query",
  order?: readonly string[],
): Json[] {
  if (schema === undefined) return [];
  const { properties, required } = inline(schema);
  return (order ?? Object.keys(properties)).map((name) => ({
    name,
    in: place,
    required: place === "path" || required.includes(name),
    schema: properties[name],
  }));
}

function headersOf(schema: z.ZodObject): Json {
  const { properties, required } = inline(schema);
  return Object.fromEntries(
    Object.entries(properties).map(([name, header]) => [
      name,
      { required: required.includes(name), schema: header },
    ]),
  );
}

function inline(schema: z.ZodObject) {
  const { properties = {}, required = [] } = tidied(z.toJSONSchema(schema, { io: "input" })) as {
    properties?: Record<string, Json>;
    required?: string[];
  };
  return { properties, required };
}
