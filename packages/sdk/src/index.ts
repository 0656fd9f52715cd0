/** The TypeScript client of Perdure for Node. */
export * from "./everywhere.ts";
export * from "./paths.ts";
export * from "./perdure.ts";
