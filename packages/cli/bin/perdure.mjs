#!/usr/bin/env node
/** Launcher of `perdure`: what it runs is src/main.ts. */
const failed = ["exec", "shell"].includes(process.argv[2]) ? 125 : 1;
const { launch } = await import("@perdure/sdk/launch").catch(() => {
  console.error("perdure: its packages are not installed\nHint: run `npm install`.");
  process.exit(failed);
});
await launch("perdure", new URL("../src/main.ts", import.meta.url), failed);
