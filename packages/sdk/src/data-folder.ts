/**
 * Folders of the data directory, made before anything is opened in them: what is wrong with them is told
 * here. For those who start a daemon, and for the daemon itself, which is also started by hand.
 */
import { mkdirSync, rmdirSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { PerdureError } from "@perdure/protocol";
import { localError } from "./local-error.ts";
import { checkSocketPath } from "./paths.ts";
import type { DaemonPaths } from "./paths.ts";

export const HOME_HINT = "Set --home or PERDURE_HOME to a folder that you may write.";

/** What a folder is for, and what to do where it cannot be had. */
export interface FolderUse {
  /** As in "the data directory". */
  readonly name: string;
  readonly mode: number;
  readonly hint: string;
}

/** VM processes pass through. */
const dataDirectory: FolderUse = { name: "data directory", mode: 0o711, hint: HOME_HINT };

/** Returns the undo, for a start that came to nothing. @throws typed, and leaves nothing that it made */
export function makeFolders({ home, run, socket }: DaemonPaths): () => void {
  checkSocketPath(socket);
  const made: string[] = [];
  const undo = (): void => {
    for (const folder of made.reverse()) removeEmpty(folder);
  };
  try {
    made.push(...makeFolder(home, dataDirectory));
    made.push(...makeFolder(run, dataDirectory));
  } catch (error) {
    undo();
    throw error;
  }
  return undo;
}

/** Makes `folder` and what is missing above it; returns those, the highest first. @throws typed */
export function makeFolder(folder: string, use: FolderUse): string[] {
  const made: string[] = [];
  try {
    make(folder, use.mode, made);
    return made;
  } catch (error) {
    for (const each of made.reverse()) removeEmpty(each);
    if ((error as NodeJS.ErrnoException).code === "EEXIST") {
      const message = `Cannot use "${folder}" for the ${use.name}: it is not a folder`;
      throw new PerdureError("bad_request", message, { hint: use.hint });
    }
    throw localError(`make the ${use.name} "${folder}"`, error, use.hint);
  }
}

/** Not with `recursive`: that never returns for a folder in /proc. */
function make(folder: string, mode: number, made: string[]): void {
  try {
    mkdirSync(folder, { mode });
    made.push(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && isFolder(folder)) return;
    if (code !== "ENOENT" || isFolder(dirname(folder))) throw error;
    make(dirname(folder), mode, made);
    // Another start may make the same at the same moment.
    make(folder, mode, made);
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** What others put there meanwhile stays. */
function removeEmpty(folder: string): void {
  try {
    rmSync(`${folder}/start.lock`, { force: true });
    rmdirSync(folder);
  } catch {
    // Not empty, or gone already.
  }
}
