/** The TypeScript client of Perdure for browsers and whatever else has `fetch` and `WebSocket`. */
export * from "./everywhere.ts";
export * from "./perdure-browser.ts";
