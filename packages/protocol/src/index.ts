/** The vocabulary that every other package speaks: schemas, ids, canonical JSON, errors. */
export * from "./agent.ts";
export * from "./api.ts";
export * from "./canonical-json.ts";
export * from "./duration.ts";
export * from "./error.ts";
export * from "./file.ts";
export * from "./id.ts";
export * from "./image.ts";
export * from "./manifest.ts";
export * from "./rest.ts";
export * from "./route/openapi.ts";
export * from "./route/route.ts";
export * from "./route/table.ts";
export * from "./transfer.ts";
export * from "./verify.ts";
export * from "./wake-report.ts";
export * from "./why.ts";
