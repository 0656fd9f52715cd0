/** A folder's way between this host and an agent, as an archive: whole, or not there. It never mixes with another. */
import { randomBytes } from "node:crypto";
import { lstat, mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join, posix, resolve } from "node:path";
import { PerdureError } from "@perdure/sdk";
import type { Attachment, ErrorCode, Output, Perdure, ProcessHandle } from "@perdure/sdk";
import { localError } from "@perdure/sdk/local-error";
import { emptyFolderCopy, packFolder, unpackFolder } from "./folder-archive.ts";
import type { FolderCopy } from "./folder-archive.ts";
import { isFolder } from "./file-copy.ts";
import { given } from "./given.ts";
import { counted, readHere } from "./passing-bytes.ts";
import type { AgentPlace } from "./place.ts";
import { quoted } from "./quoted.ts";

/** So long a copy may take that is cut off from here: nothing stays in the agent for ever. */
const AWAKE_MS_MAX = 24 * 3_600_000;
/** Of what tar says went wrong, letters. */
const WORDS_MAX = 4096;
const LINE_MAX = 200;

/** GNU tar, on what was written to or went while it packed: exit code 1, and the archive is whole. */
const CHANGED = /: (file changed as we read it|File removed before we read it)$/i;
/** Of facts that only the writer of an archive has a use for. */
const NOT_KNOWN = "Ignoring unknown extended header";
/** So long a guest has to end its tar. */
const END_MS = 5_000;

/**
 * Unpacks its stdin in the folder it is in, `$0`. Where whoever copies is gone, tar and what it unpacked go, too:
 * an archive that only ends may look whole.
 */
const UNPACK = `exec 3<&0
tar -x -p -o -f - <&3 3<&- &
gone() { kill -9 $! 2>&-; wait $!; cd /; rm -rf -- "$0"; exit 1; }
trap gone HUP
wait $!
code=$?
[ $code -lt 128 ] || gone
exit $code`;
/** Of a shell that finds no such program. */
const NOT_FOUND = 127;

const reasons: readonly (readonly [string, ErrorCode])[] = [
  ["No space left on device", "disk_full"],
  ["Permission denied", "path_denied"],
];

export interface FolderCopySettings {
  readonly user?: string | undefined;
  /** Told the bytes of the archive that went over so far. */
  readonly progress: (bytes: number) => void;
  /** Ends the copy; it rejects then with `cancelled`. */
  readonly signal: AbortSignal;
}

/**
 * @param to its folder must be there; behind a slash at its end the copy has the name of `from`
 * @throws `path_exists`, and as `Perdure.exec`
 */
export async function uploadFolder(
  perdure: Perdure,
  from: string,
  to: AgentPlace,
  settings: FolderCopySettings,
): Promise<FolderCopy> {
  const { agent } = to;
  const target = to.path.endsWith("/") ? `${to.path}${basename(resolve(from))}` : to.path;
  const user = given({ user: settings.user });
  await requireFree(perdure, { agent, path: target }, user);
  const draft = posix.join(posix.dirname(target), draftName(target));
  const copy = emptyFolderCopy();
  await perdure
    .makeFolder(agent, draft, { ...user, mode: 0o700 })
    .catch(explained(`write "${target}" in agent "${agent}"`));
  try {
    const argv = ["sh", "-c", UNPACK, draft];
    await using tar = await Tar.start(perdure, agent, argv, {
      request: { ...user, cwd: draft, stdin: true },
      ...settings,
    });
    const archive = counted(readHere(`"${from}"`, packFolder(from, copy)), settings.progress);
    const ending = tar.drain();
    // What is wrong on this side ends tar, and tells more than that end does.
    ending.catch(() => undefined);
    await tar.feed(archive);
    await ending;
    await perdure.movePath(agent, draft, target, user);
  } catch (error) {
    throw await withoutDraft(error, perdure, { agent, path: draft }, user);
  }
  return copy;
}

/** Rethrows; a path that is missing is the folder of the copy. */
function explained(action: string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof PerdureError) || error.code !== "path_not_found") throw error;
    throw new PerdureError(error.code, `Cannot ${action}: the folder it is in does not exist`, {
      hint: "Make that first: perdure file mkdir --parents.",
      cause: error,
    });
  };
}

/** An agent that sleeps by now is not woken for it: what could not be removed is named. */
async function withoutDraft(
  error: unknown,
  perdure: Perdure,
  { agent, path }: AgentPlace,
  user: { readonly user?: string },
): Promise<unknown> {
  const { code, message, details } = PerdureError.from(error);
  if (code !== "interrupted") {
    const isGone = (problem: unknown): boolean =>
      PerdureError.from(problem).code === "path_not_found";
    const removing = perdure.removePath(agent, path, { ...user, recursive: true });
    if (await removing.then(() => true).catch(isGone)) return error;
  }
  const hint = `\`perdure file remove ${agent}:${path} --recursive\` removes what was begun.`;
  return new PerdureError(code, message, { hint, details, cause: error });
}

async function requireFree(
  perdure: Perdure,
  { agent, path }: AgentPlace,
  user: { readonly user?: string },
): Promise<void> {
  const isThere = await perdure.stat(agent, path, user).then(
    () => true,
    (error: unknown) => {
      if (error instanceof PerdureError && error.code === "path_not_found") return false;
      throw error;
    },
  );
  if (!isThere) return;
  throw new PerdureError("path_exists", `Cannot write "${path}" in agent "${agent}": it exists`, {
    hint: `Give the copy another name, as in ${agent}:${posix.join(path, "NAME")}, or remove that first: perdure file remove.`,
  });
}

/**
 * @param to in a folder that is there the copy has the name of `from`
 * @throws `path_not_folder`, `path_exists`, and as `Perdure.exec`
 */
export async function downloadFolder(
  perdure: Perdure,
  { agent, path }: AgentPlace,
  to: string,
  settings: FolderCopySettings,
): Promise<FolderCopy> {
  const target = (await isFolder(to)) ? join(to, basename(path)) : to;
  const action = `write "${target}" on this host`;
  if (await isThere(target)) {
    throw new PerdureError("path_exists", `Cannot ${action}: it exists`, {
      hint: "Give the copy another name, or move that away first.",
    });
  }
  const draft = join(dirname(target), draftName(target));
  const copy = emptyFolderCopy();
  const user = given({ user: settings.user });
  const argv = ["tar", "-c", "-f", "-", "."];
  try {
    await mkdir(draft, { mode: 0o700 });
    await using tar = await Tar.start(perdure, agent, argv, {
      request: { ...user, cwd: path },
      ...settings,
    });
    await unpackFolder(counted(tar.output(), settings.progress), draft, copy);
    await rename(draft, target);
  } catch (error) {
    const known = localError(action, error);
    // A piece may still be on its way to the disk.
    const removing = rm(draft, { recursive: true, force: true, maxRetries: 5 });
    const { code, message, details } = known;
    throw await removing.then(
      () => known,
      () => new PerdureError(code, message, { details, hint: `What was begun is "${draft}".` }),
    );
  }
  return copy;
}

function draftName(path: string): string {
  return `.${basename(path).slice(0, 200)}.perdure-${randomBytes(6).toString("hex")}`;
}

async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

interface TarSettings {
  readonly request: { readonly user?: string; readonly cwd: string; readonly stdin?: boolean };
  readonly signal: AbortSignal;
}

/** tar at work in an agent. Disposing of it ends it where it runs still. */
class Tar implements AsyncDisposable {
  readonly #attached: Attachment;
  readonly #handle: ProcessHandle;
  readonly #signal: AbortSignal;
  #runs = true;
  /** What it said on stderr, the last of it. */
  #words = "";

  private constructor(attached: Attachment, handle: ProcessHandle, signal: AbortSignal) {
    this.#attached = attached;
    this.#handle = handle;
    this.#signal = signal;
    signal.addEventListener("abort", this.#abort);
    if (signal.aborted) this.#abort();
  }

  static async start(
    perdure: Perdure,
    agent: string,
    argv: readonly string[],
    { request, signal }: TarSettings,
  ): Promise<Tar> {
    // What it says is read here.
    const bounded = { ...request, env: { LC_ALL: "C" }, timeoutMs: AWAKE_MS_MAX };
    const handle = await perdure.exec(agent, argv, bounded).catch((error: unknown) => {
      if (!(error instanceof PerdureError) || error.code !== "exec_failed") throw error;
      throw notStarted(agent, error.message, error);
    });
    const attached = await handle.attach({ hangsUp: true }).catch(async (error: unknown) => {
      await end(handle);
      throw error;
    });
    return new Tar(attached, handle, signal);
  }

  /** Also where the guest does not do what it is told. */
  readonly #abort = (): void => void this.#end().then(() => this.#attached.close());

  async #end(): Promise<void> {
    if (this.#runs) await end(this.#handle);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#signal.removeEventListener("abort", this.#abort);
    await this.#end();
    this.#attached.close();
  }

  /** Everything to its stdin, which is ended then. Where it takes no more, how it ends tells why. */
  async feed(archive: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const piece of archive) await this.#attached.write(piece);
      await this.#attached.end();
    } catch (error) {
      const tookNoMore = ["stdin_closed", "process_ended", "interrupted"] as const;
      if (error instanceof PerdureError && tookNoMore.some((code) => code === error.code)) return;
      await this.#end();
      throw error;
    }
  }

  /** Its stdout. @throws where it did not end well, behind the last byte */
  async *output(): AsyncGenerator<Uint8Array> {
    for await (const event of this.#events()) {
      switch (event.type) {
        case "output":
          if (event.stream === "stdout") yield event.bytes;
          else this.#hear(event.bytes);
          break;
        case "cut":
          throw interrupted("some of it was not kept");
        case "interrupted":
          this.#runs = false;
          throw interrupted(event.reason);
        case "exit":
          this.#runs = false;
          if (event.exitCode === NOT_FOUND) {
            throw notStarted(this.#attached.agent, quoted(this.#lines()[0] ?? ""));
          }
          if (event.exitCode !== 0 && !this.#onlySawChanges(event.exitCode)) throw this.#failure();
          return;
      }
    }
    throw this.#signal.aborted ? stopped() : interrupted("the connection ended");
  }

  /** A copy is not gone on with: what broke off says nothing of an offset. */
  async *#events(): AsyncGenerator<Output> {
    try {
      yield* this.#attached;
    } catch (error) {
      const known = PerdureError.from(error);
      throw known.code === "interrupted" ? interrupted("the connection ended") : error;
    }
  }

  /** Until it has ended. @throws where it did not end well */
  async drain(): Promise<void> {
    for await (const _ of this.output());
  }

  #hear(bytes: Uint8Array): void {
    this.#words = (this.#words + new TextDecoder().decode(bytes)).slice(-WORDS_MAX);
  }

  /** Of what is written to while it is packed there is no better copy. */
  #onlySawChanges(exitCode: number | null): boolean {
    return exitCode === 1 && this.#lines().every((line) => CHANGED.test(line));
  }

  #lines(): string[] {
    return this.#words.trim().split("\n");
  }

  #failure(): PerdureError {
    if (this.#signal.aborted) return stopped();
    const known = reasons.find(([words]) => this.#words.includes(words));
    const line = this.#lines().find((words) => !words.includes(NOT_KNOWN)) ?? "";
    const reason = line === "" ? "it was ended" : quoted(line.slice(0, LINE_MAX));
    return new PerdureError(known?.[1] ?? "guest_error", `tar in the agent failed: ${reason}`);
  }
}

function notStarted(agent: string, reason: string, cause?: unknown): PerdureError {
  return new PerdureError("exec_failed", `Cannot start tar in agent "${agent}": ${reason}`, {
    hint: "Folders are copied by the shell and the tar of the agent's image; install them in it.",
    cause,
  });
}

function stopped(): PerdureError {
  return new PerdureError("cancelled", "The copy was stopped");
}

async function end(handle: ProcessHandle): Promise<void> {
  await handle.signal("SIGKILL", { signal: AbortSignal.timeout(END_MS) }).catch(() => undefined);
}

function interrupted(reason: string): PerdureError {
  return new PerdureError("interrupted", `The copy was cut: ${reason}`, { hint: "Copy it again." });
}
