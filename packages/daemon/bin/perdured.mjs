#!/usr/bin/env node
/**
 * Launcher of `perdured`: runs on any Node from 20 on, and lets Node 24 or newer run src/main.ts. That is
 * this Node where it is new enough, else the one that was installed as package `node-<os>-<arch>`.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const NODE_MAJOR_MIN = 24;
const main = new URL("../src/main.ts", import.meta.url);
const cache = process.env.NODE_COMPILE_CACHE ?? join(cacheHome(), "perdure", "compile");

if (Number(process.versions.node.split(".")[0]) >= NODE_MAJOR_MIN) {
  module.enableCompileCache(cache);
  await import(main.href);
} else {
  const node = findNode();
  if (node === undefined) {
    console.error(
      "perdured: Node 24 or newer is needed, and this is Node " + process.versions.node,
    );
    console.error("Hint: run `npm install`, which brings one, or install it.");
    process.exit(1);
  }
  runWith(node);
}

/** A folder that only this user writes: what lies in it is run. */
function cacheHome() {
  return process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
}

function findNode() {
  const part = join("node_modules", `node-${process.platform}-${process.arch}`, "bin", "node");
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    if (existsSync(join(folder, part))) return join(folder, part);
    if (folder === dirname(folder)) return undefined;
    folder = dirname(folder);
  }
}

/** Ends as the child ends. A terminal sends Ctrl-C to both, so then it is not passed on. */
function runWith(node) {
  const args = ["--disable-warning=ExperimentalWarning", fileURLToPath(main)];
  const child = spawn(node, [...args, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  });
  const fromTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
    process.on(signal, () => {
      if (signal === "SIGTERM" || !fromTerminal) child.kill(signal);
    });
  }
  child.on("error", (error) => {
    console.error("perdured: " + error.message);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
