/** Files of an agent, by path. Part of `Perdure`; examples run as they stand. */
import { folderEventSchema, PerdureError, routes } from "@perdure/protocol";
import type { PathFacts as PathFactsAnswer } from "@perdure/protocol";
import { Caller } from "./caller.ts";
import { createFileRead } from "./file-read.ts";
import type { FileFacts, FileRead } from "./file-read.ts";
import { watchEvents } from "./file-watch.ts";
import type { FileEvent } from "./file-watch.ts";
import { jsonValues } from "./json-stream.ts";
import type { CallOptions } from "./transport.ts";

/** What stands at a path; of a link, the link itself. */
export interface PathFacts extends FileFacts {
  readonly kind: "file" | "directory" | "link" | "other";
}

/** One of those in a folder. */
export interface FolderEntry extends PathFacts {
  /** What is not UTF-8 in it comes as U+FFFD: such an entry is seen, but cannot be named. */
  readonly name: string;
  /** Where a link leads, as it is written there; null: not a link. */
  readonly linkTarget: string | null;
}

export interface FileOptions extends CallOptions {
  /** Whose rights count inside; default: who the image runs programs as, `user` for the built-in one. */
  readonly user?: string;
}

export class FileCalls extends Caller {
  /**
   * Reads a file of the agent, or a part of it. Symbolic links are never followed.
   *
   * @param options.offset where the part begins, default 0
   * @param options.length of the part, at least 1; fewer bytes come where the file ends before
   * @throws `path_not_found`, `path_denied`, `path_is_link`, `path_is_directory`; `range_not_satisfiable` where
   *   the file ends before `offset`
   * @example
   * await perdure.writeFile("a1", "/home/user/note", "hello");
   * const file = await perdure.readFile("a1", "/home/user/note");
   * console.log(file.facts.size, await file.text());
   * const part = await perdure.readFile("a1", "/home/user/note", { offset: 1, length: 3 });
   * console.log(await part.text()); // ell
   */
  async readFile(
    agent: string,
    path: string,
    options: FileOptions & { readonly offset?: number; readonly length?: number } = {},
  ): Promise<FileRead> {
    const { user, offset, length, ...call } = options;
    const ranged = offset !== undefined || length !== undefined;
    const answer = await this.callForStream(
      routes.readFile,
      { agent },
      {
        query: { path, user },
        ...(ranged ? { headers: { range: rangeHeader(path, offset, length) } } : {}),
        ...call,
      },
    );
    return createFileRead(answer, ranged);
  }

  /**
   * Writes a file of the agent: whole, or not at all.
   *
   * @param content an iterable needs `size`, its length in bytes
   * @param options.mode permission bits, default 0o644
   * @throws `path_not_found` for the folder, `path_denied`, `size_mismatch`, `too_large`, `disk_full`
   * @example
   * await perdure.writeFile("a1", "/home/user/run.sh", "#!/bin/sh\necho hi\n", { mode: 0o755 });
   */
  async writeFile(
    agent: string,
    path: string,
    content: string | Uint8Array | Blob | AsyncIterable<Uint8Array>,
    options: FileOptions & { readonly mode?: number; readonly size?: number } = {},
  ): Promise<void> {
    const body = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const size =
      body instanceof Uint8Array ? body.length : body instanceof Blob ? body.size : options.size;
    if (size === undefined) {
      throw new PerdureError("bad_request", `Cannot write "${path}": its size is not known`, {
        hint: "Pass `size` along with an iterable.",
      });
    }
    const mode = options.mode === undefined ? undefined : octal(options.mode);
    await this.callForNothing(
      routes.writeFile,
      { agent },
      {
        query: { path, user: options.user, mode },
        body,
        size,
        signal: options.signal,
      },
    );
  }

  /**
   * What stands at a path. A link is described, not followed.
   *
   * @throws `path_not_found`, `path_denied`, `path_is_link` where a link stands before the last part
   * @example
   * await perdure.writeFile("a1", "/home/user/note", "hello");
   * const { kind, size, mode } = await perdure.stat("a1", "/home/user/note");
   * console.log(kind, size, mode.toString(8)); // file 5 644
   */
  async stat(agent: string, path: string, options: FileOptions = {}): Promise<PathFacts> {
    const { user, ...call } = options;
    return factsOf(await this.call(routes.stat, { agent }, { query: { path, user }, ...call }));
  }

  /**
   * What is in a folder, in no order, fetched as the loop goes on. What comes or goes meanwhile may be
   * there or not.
   *
   * @throws `path_not_found`, `path_not_folder`, `path_denied`, `interrupted` where the agent sleeps meanwhile
   * @example
   * await perdure.makeFolder("a1", "/home/user/work");
   * await perdure.writeFile("a1", "/home/user/work/note", "hello");
   * for await (const { name, kind, size } of perdure.listFolder("a1", "/home/user/work")) {
   *   console.log(name, kind, size); // note file 5
   * }
   */
  async *listFolder(
    agent: string,
    path: string,
    options: FileOptions = {},
  ): AsyncGenerator<FolderEntry> {
    const { user, ...call } = options;
    const { bytes } = await this.callForStream(
      routes.listFolder,
      { agent },
      {
        query: { path, user },
        ...call,
      },
    );
    for await (const event of jsonValues(folderEventSchema, bytes)) {
      if (event.type === "end") return;
      if (event.type === "error") throw PerdureError.fromBody(event.error);
      const { name, linkTarget } = event;
      yield { name, ...factsOf(event), linkTarget };
    }
    throw new PerdureError("interrupted", `The list of "${path}" ended early`, {
      hint: "List it again.",
    });
  }

  /**
   * Makes a folder; durable when it resolves.
   *
   * @param options.parents makes those on the way to it, too, and does nothing where it is there already
   * @param options.mode permission bits, default 0o755
   * @throws `path_exists`, `path_not_found` for the folder it is in, `path_denied`, `disk_full`
   * @example
   * await perdure.makeFolder("a1", "/home/user/work/deep", { parents: true });
   */
  async makeFolder(
    agent: string,
    path: string,
    options: FileOptions & { readonly parents?: boolean; readonly mode?: number } = {},
  ): Promise<void> {
    const { user, parents, mode, ...call } = options;
    await this.callForNothing(
      routes.makeFolder,
      { agent },
      {
        json: { path, user, parents, mode: mode === undefined ? undefined : octal(mode) },
        ...call,
      },
    );
  }

  /**
   * Moves or renames a file, a link or a folder in one step: `to` is what was there before, or all of `from`.
   *
   * @param options.replace lets what stands at `to` give way: a file to a file, an empty folder to a folder
   * @throws `path_not_found`, `path_exists`, `path_not_empty`, `path_denied`, `path_crosses_mount`
   * @example
   * await perdure.writeFile("a1", "/home/user/draft", "hello");
   * await perdure.movePath("a1", "/home/user/draft", "/home/user/final", { replace: true });
   */
  async movePath(
    agent: string,
    from: string,
    to: string,
    options: FileOptions & { readonly replace?: boolean } = {},
  ): Promise<void> {
    const { user, replace, ...call } = options;
    await this.callForNothing(
      routes.movePath,
      { agent },
      {
        json: { from, to, user, replace },
        ...call,
      },
    );
  }

  /**
   * Removes a file, a link or an empty folder. A link is removed itself, never followed.
   *
   * @param options.recursive removes a folder with all that is in it; what failed half-way may be repeated
   * @throws `path_not_found`, `path_not_empty`, `path_denied`, `path_crosses_mount`
   * @example
   * await perdure.makeFolder("a1", "/home/user/work/deep", { parents: true });
   * await perdure.removePath("a1", "/home/user/work", { recursive: true });
   */
  async removePath(
    agent: string,
    path: string,
    options: FileOptions & { readonly recursive?: boolean } = {},
  ): Promise<void> {
    const { user, recursive, ...call } = options;
    await this.callForNothing(
      routes.removePath,
      { agent },
      {
        query: { path, user, recursive },
        ...call,
      },
    );
  }

  /**
   * What changes at a path and, where it is a folder, in it. Ends when the path itself is gone. A sleep cuts it:
   * then it yields `interrupted`, waits until the agent is awake again without waking it, and yields `missed`.
   *
   * @param options.recursive whatever is below it, at any depth
   * @param options.reattach false: ends after `interrupted`
   * @throws `path_not_found`, `path_denied`, `path_is_link`, `too_many`, `agent_not_found` once it is removed
   * @example
   * await perdure.makeFolder("a1", "/home/user/inbox");
   * for await (const event of perdure.watch("a1", "/home/user/inbox")) {
   *   if (event.type === "ready") await perdure.writeFile("a1", "/home/user/inbox/letter", "hello");
   *   if (event.type === "missed") console.log("look at the whole folder");
   *   if (event.type === "created") break;
   * }
   */
  async *watch(
    agent: string,
    path: string,
    options: FileOptions & { readonly recursive?: boolean; readonly reattach?: boolean } = {},
  ): AsyncGenerator<FileEvent, undefined> {
    const { user, recursive, reattach = true, signal } = options;
    yield* watchEvents({
      open: (wakes) =>
        this.callForStream(
          routes.watch,
          { agent },
          {
            query: { path, user, recursive, wakes },
            signal,
          },
        ),
      show: () => this.call(routes.show, { agent }, { signal }),
      signal,
      reattach,
    });
  }
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, "0");
}

function factsOf({ mode, kind, size, uid, gid, mtimeMs }: PathFactsAnswer): PathFacts {
  return { kind, size, mode: parseInt(mode, 8), uid, gid, mtimeMs };
}

function rangeHeader(path: string, offset = 0, length?: number): string {
  const isWhole = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
  if (isWhole(offset) && (length === undefined || (isWhole(length) && length > 0))) {
    return `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`;
  }
  throw new PerdureError(
    "bad_request",
    `Cannot read "${path}" from ${offset} on for ${length ?? "all"} bytes: those are no bounds`,
  );
}
