/** Files of an agent, by path. Part of `Perdure`; examples run as they stand. */
import { pathOf, PerdureError, routes } from "@perdure/protocol";
import { Caller } from "./caller.ts";
import { createFileRead } from "./file-read.ts";
import type { FileRead } from "./file-read.ts";
import type { CallOptions } from "./transport.ts";

export interface FileOptions extends CallOptions {
  /** Whose rights count inside; default `user`. */
  readonly user?: string;
}

export class FileCalls extends Caller {
  /**
   * Reads a file of the agent. Symbolic links are never followed.
   *
   * @throws `path_not_found`, `path_denied`, `path_is_link`, `path_is_directory`
   * @example
   * await perdure.writeFile("a1", "/home/user/note", "hello");
   * const file = await perdure.readFile("a1", "/home/user/note");
   * console.log(file.facts.size, await file.text());
   */
  async readFile(agent: string, path: string, options: FileOptions = {}): Promise<FileRead> {
    const { user, ...call } = options;
    const query = { path, user };
    const url = pathOf(routes.readFile, { agent });
    return createFileRead(
      await this.transport.stream({ method: "GET", path: url, query, ...call }),
    );
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
    const mode = options.mode?.toString(8).padStart(3, "0");
    await this.transport.empty({
      method: "PUT",
      path: pathOf(routes.writeFile, { agent }),
      once: true,
      query: { path, user: options.user, mode },
      body,
      size,
      signal: options.signal,
    });
  }
}
