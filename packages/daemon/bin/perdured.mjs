#!/usr/bin/env node
/** Launcher of `perdured`: what it runs is src/main.ts. */
const { launch } = await import("@perdure/sdk/launch").catch(() => {
  console.error("perdured: its packages are not installed\nHint: run `npm install`.");
  process.exit(1);
});
// A log that cannot be written, on a full disk, must not end the daemon.
process.stderr.on("error", () => {});
await launch("perdured", new URL("../src/main.ts", import.meta.url));
