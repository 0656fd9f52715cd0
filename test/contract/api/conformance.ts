/**
 * Holds what goes over the wire against the OpenAPI document, with a validator that shares no code with
 * the zod schemas which the daemon and the SDK use.
 *
 * Answers are held to more than the document promises to clients: a field that it does not name is a
 * violation. A request is held to it only where the daemon took it.
 */
import { Ajv2020 } from "ajv/dist/2020.js";
import type { ValidateFunction } from "ajv/dist/2020.js";
import { isErrorCode, openApiDocument, PerdureError } from "@perdure/protocol";

export interface Exchange {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly requestBody: string;
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Null where it was not read to its end. */
  readonly body: string | null;
}

interface Media {
  readonly schema?: { readonly $ref: string };
  readonly "x-perdure-part"?: { readonly $ref: string };
}
interface Response {
  readonly content?: Readonly<Record<string, Media>>;
  readonly headers?: Readonly<
    Record<string, { readonly required: boolean; readonly schema: object }>
  >;
}
interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly {
    readonly name: string;
    readonly in: "path" | "query" | "header";
    readonly required: boolean;
    readonly schema: object;
  }[];
  readonly requestBody?: Response & { readonly required: boolean };
  readonly responses: Readonly<Record<string, Response>>;
}

const document = openApiDocument("0.0.0") as unknown as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: object;
};
const vocabulary = ["components"];
const requests = new Ajv2020({ strict: true, allowUnionTypes: true });
const answers = new Ajv2020({ strict: true, allowUnionTypes: true });
const texts = new Ajv2020({ strict: true, allowUnionTypes: true, coerceTypes: true });
for (const ajv of [requests, answers, texts]) ajv.addVocabulary(vocabulary);
requests.addSchema({ $id: "api", components: document.components });
answers.addSchema({ $id: "api", components: closed(document.components) });

const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({
    method: method.toUpperCase(),
    names: [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name),
    pattern: new RegExp(`^${path.replaceAll(".", "\\.").replace(/\{\w+\}/g, "([^/]+)")}$`),
    operation,
  })),
);

/** Operations that an exchange with success was seen of, by this process. */
export const seenOperations = new Set<string>();

/** @returns what does not fit, in words; nothing where all does */
export function violations(exchange: Exchange): string[] {
  const { method, url, status } = exchange;
  const [path = "", query = ""] = url.split("?", 2);
  const found = operations.find((each) => each.method === method && each.pattern.test(path));
  const told = (words: string): string => `${method} ${path} → ${status}: ${words}`;
  if (status >= 400) return errorViolations(exchange).map(told);
  if (found === undefined) return [told("there is no such operation")];
  const { operation, names, pattern } = found;
  seenOperations.add(operation.operationId);
  const params = Object.fromEntries(
    (pattern.exec(path) ?? []).slice(1).map((value, i) => [names[i], decodeURIComponent(value)]),
  ) as Record<string, string>;
  return [
    ...parameterViolations(operation, "path", params),
    ...parameterViolations(operation, "query", Object.fromEntries(new URLSearchParams(query))),
    ...bodyViolations(operation, exchange.requestBody),
    ...answerViolations(operation, exchange),
  ].map(told);
}

function errorViolations({ status, body, headers }: Exchange): string[] {
  if (body === null) return [];
  const error = parsed(body);
  const found = misfit(answers, { $ref: "api#/components/schemas/Error" }, error);
  if (found !== null) return [`error ${found}: ${body.slice(0, 200)}`];
  if (!String(headers["content-type"]).startsWith("application/json")) return ["error is no JSON"];
  const { code } = error as { code: unknown };
  if (!isErrorCode(code)) return [`code ${String(code)} is not in the table`];
  const expected = new PerdureError(code, "").status;
  return expected === status ? [] : [`${code} has status ${expected}`];
}

function parameterViolations(
  { parameters = [] }: Operation,
  place: "path" | "query",
  values: Readonly<Record<string, string>>,
): string[] {
  const declared = parameters.filter((parameter) => parameter.in === place);
  const unknown = Object.keys(values).filter((key) => !declared.some(({ name }) => name === key));
  return [
    ...unknown.map((name) => `${place} parameter ${name} is not in the document`),
    ...declared.flatMap(({ name, required, schema }) => {
      const value = values[name];
      if (value === undefined) return required ? [`${place} parameter ${name} is missing`] : [];
      const found = misfit(texts, schema, value);
      return found === null ? [] : [`${place} parameter ${name} ${found}`];
    }),
  ];
}

function bodyViolations({ requestBody }: Operation, body: string): string[] {
  if (requestBody === undefined) {
    return body === "" || body === "{}" ? [] : ["the document knows no request body"];
  }
  const schema = requestBody.content?.["application/json"]?.schema;
  if (schema === undefined) return [];
  if (body === "") return requestBody.required ? ["the request body is missing"] : [];
  const found = misfit(requests, absolute(schema), parsed(body));
  return found === null ? [] : [`request ${found}`];
}

function answerViolations({ responses }: Operation, { status, headers, body }: Exchange): string[] {
  const response = responses[String(status)];
  if (response === undefined) return ["the document knows no such status"];
  const ofHeaders = Object.entries(response.headers ?? {}).flatMap(([name, header]) => {
    const value = headers[name];
    if (value === undefined) return header.required ? [`header ${name} is missing`] : [];
    const found = misfit(texts, header.schema, value);
    return found === null ? [] : [`header ${name} ${found}`];
  });
  return [...ofHeaders, ...contentViolations(response, headers["content-type"], body)];
}

function contentViolations(
  { content }: Response,
  type: string | string[] | undefined,
  body: string | null,
): string[] {
  if (content === undefined) return body === "" || body === null ? [] : ["there is a body"];
  const media = String(type).split(";")[0] ?? "";
  const declared = content[media];
  if (declared === undefined) return [`media type ${media} is not in the document`];
  if (body === null) return [];
  const part = declared["x-perdure-part"];
  if (part !== undefined) {
    return partsOf(media, body).flatMap((text) => {
      const found = misfit(answers, absolute(part), parsed(text));
      return found === null ? [] : [`part ${found}: ${text.slice(0, 200)}`];
    });
  }
  if (declared.schema === undefined) return [];
  const found = misfit(answers, absolute(declared.schema), parsed(body));
  return found === null ? [] : [`answer ${found}`];
}

/** Of a stream that may have been left before its end: whole parts. */
function partsOf(media: string, body: string): string[] {
  if (media === "application/x-ndjson") return body.split("\n").slice(0, -1);
  const events = body.split("\n\n").slice(0, -1);
  return events.flatMap((event) => {
    const data = event.split("\n").filter((line) => line.startsWith("data:"));
    return data.length === 0 ? [] : [data.map((line) => line.slice(5).trimStart()).join("\n")];
  });
}

const compiled = new WeakMap<Ajv2020, Map<string, ValidateFunction>>();

/** Why `value` does not fit, or null. */
function misfit(ajv: Ajv2020, schema: object, value: unknown): string | null {
  const known = compiled.get(ajv) ?? new Map<string, ValidateFunction>();
  compiled.set(ajv, known);
  const key = JSON.stringify(schema);
  const validate = known.get(key) ?? ajv.compile(schema);
  known.set(key, validate);
  return validate(value) ? null : `does not fit: ${ajv.errorsText(validate.errors)}`;
}

function absolute({ $ref }: { readonly $ref: string }): object {
  return { $ref: `api${$ref}` };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The same with every object closed to fields that it does not name. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, entry]) => [key, closed(entry)] as const);
  const copy = Object.fromEntries(entries) as Record<string, unknown>;
  const isObject = copy["type"] === "object" && "properties" in copy;
  return isObject ? { additionalProperties: false, ...copy } : copy;
}
