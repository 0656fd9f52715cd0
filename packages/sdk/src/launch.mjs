/**
 * Runs a program of Perdure from any Node from 20 on with Node 24 or newer, which reads TypeScript. That is
 * this Node where it is new enough, else the one that was installed as package `node-<os>-<arch>`.
 */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import v8 from "node:v8";

const NODE_MAJOR_MIN = 24;

/**
 * Threads of one process that read TypeScript at once run WebAssembly at once, and V8 13.6 sometimes ends the process
 * while it frees a wrapper of theirs that was compiled anew ("Check failed: jit_page.has_value()"). None is.
 */
const NO_NEW_WRAPPERS = "--wasm-wrapper-tiering-budget=2147483647";

/**
 * `main` is the program's URL, `name` how it calls itself. `failed` is the exit code where it cannot run;
 * else it is the program's own.
 */
export async function launch(name, main, failed = 1) {
  const cache = process.env.NODE_COMPILE_CACHE ?? join(cacheHome(), "perdure", "compile");
  if (Number(process.versions.node.split(".")[0]) >= NODE_MAJOR_MIN) {
    v8.setFlagsFromString(NO_NEW_WRAPPERS);
    module.enableCompileCache(cache);
    await import(main.href);
    return;
  }
  const fail = (message) => {
    console.error(`${name}: ${message}`);
    process.exit(failed);
  };
  const node = findNode(dirname(fileURLToPath(main)));
  if (node === undefined) {
    const hint = "Hint: run `npm install`, which brings one, or install it.";
    fail(`Node 24 or newer is needed, and this is Node ${process.versions.node}\n${hint}`);
  }
  const args = [NO_NEW_WRAPPERS, "--disable-warning=ExperimentalWarning", fileURLToPath(main)];
  const child = spawn(node, [...args, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, NODE_COMPILE_CACHE: cache },
  });
  child.on("error", (error) => fail(error.message));
  followToEnd(child);
}

/** A folder that only this user writes: what lies in it is run. */
function cacheHome() {
  return process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
}

function findNode(start) {
  const part = join("node_modules", `node-${process.platform}-${process.arch}`, "bin", "node");
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, part))) return join(folder, part);
    if (folder === dirname(folder)) return undefined;
  }
}

/** Ends as the child ends. A terminal sends Ctrl-C to both, so then it is not passed on. */
function followToEnd(child) {
  const fromTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
    process.on(signal, () => {
      if (signal === "SIGTERM" || !fromTerminal) child.kill(signal);
    });
  }
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}
