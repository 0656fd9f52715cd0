/**
 * Runs the system's own tools (mmdebstrap, apt, mke2fs …) with a clean environment, so that nothing
 * of the host's finds its way into an image, and turns their failures into errors a person can use.
 */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import type { FileHandle } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { PerdureError } from "@perdure/protocol";

/** Kept of a tool's error output. */
const errorTailBytes = 8192;
/** From a tool's end until its output is not waited for any more. */
const outputLeftMs = 5_000;

export interface ToolOptions {
  /** Added to the clean environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Where standard output goes; returned as a string where absent. */
  readonly stdout?: FileHandle;
  /** Written to standard input. Where it throws, the tool is ended and the error passed on. */
  readonly stdin?: AsyncIterable<Uint8Array>;
  /** Called for each line of standard error. */
  readonly onLine?: (line: string) => void;
}

/** Runs `command` and returns its standard output; any exit but 0 is an error with its last lines. */
export async function runTool(
  command: string,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<string> {
  const child = spawn(command, args, {
    cwd: options.cwd ?? "/",
    env: { ...cleanEnvironment(), ...options.env },
    stdio: [options.stdin === undefined ? "ignore" : "pipe", options.stdout?.fd ?? "pipe", "pipe"],
  });
  const fed = options.stdin === undefined ? null : feed(child, options.stdin);
  fed?.catch(() => undefined); // Awaited when the tool has ended.
  const output: Buffer[] = [];
  let errors = "";
  let line = "";
  child.stdout?.on("data", (chunk: Buffer) => output.push(chunk));
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    errors = (errors + chunk).slice(-errorTailBytes);
    const lines = (line + chunk).split("\n");
    line = lines.pop() ?? "";
    if (options.onLine !== undefined) lines.forEach(options.onLine);
  });
  const ended = await new Promise<string | null>((resolve) => {
    let left: NodeJS.Timeout | undefined;
    child.on("error", (error) => resolve(error.message));
    // What it started, and left running, may hold its output for ever.
    child.on("exit", () => {
      left = setTimeout(() => {
        child.stdout?.destroy();
        child.stderr?.destroy();
      }, outputLeftMs);
    });
    child.on("close", (code, signal) => {
      clearTimeout(left);
      resolve(code === 0 ? null : `ended with ${signal ?? `exit code ${String(code)}`}`);
    });
  });
  await fed;
  if (ended === null) return Buffer.concat(output).toString("utf8");
  const tail = errors.trim().split("\n").slice(-6).join("\n");
  if (/No space left on device/i.test(errors)) {
    throw new PerdureError(
      "disk_full",
      `Cannot go on with "${command}": no space is left\n${tail}`,
    );
  }
  throw new PerdureError("image_build_failed", `"${command}" ${ended}\n${tail}`.trimEnd());
}

/** A tool that stops reading has its reason, which its end tells. @throws what `bytes` throws */
async function feed(child: ChildProcess, bytes: AsyncIterable<Uint8Array>): Promise<void> {
  const { stdin } = child;
  if (stdin === null) return;
  try {
    await pipeline(Readable.from(bytes, { objectMode: false }), stdin);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EPIPE" || code === "ERR_STREAM_PREMATURE_CLOSE") return;
    child.kill("SIGKILL");
    throw error;
  }
}

/** What tools see of the host: where programs are, where temporary files go, and the way out. */
export function cleanEnvironment(
  host: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  const environment: Record<string, string> = {
    PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    HOME: "/nonexistent",
    LC_ALL: "C.UTF-8",
    TZ: "UTC",
    DEBIAN_FRONTEND: "noninteractive",
  };
  for (const name of ["TMPDIR", "http_proxy", "https_proxy", "ftp_proxy", "no_proxy"]) {
    const value = host[name];
    if (value !== undefined) environment[name] = value;
  }
  return environment;
}
