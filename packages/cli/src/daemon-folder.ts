/** Folders of the data directory, made before the daemon is started: what is wrong with them is told here. */
import { mkdirSync, rmdirSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { checkSocketPath, PerdureError } from "@perdure/sdk";
import type { DaemonPaths } from "@perdure/sdk";
import { localError } from "./local-error.ts";

export const HOME_HINT = "Set --home or PERDURE_HOME to a folder that you may write.";

/** Returns the undo, for a start that came to nothing. @throws typed, and leaves nothing that it made */
export function makeFolders({ home, run, socket }: DaemonPaths): () => void {
  checkSocketPath(socket);
  const made: string[] = [];
  const undo = (): void => {
    for (const folder of made.reverse()) removeEmpty(folder);
  };
  try {
    makeFolder(home, made);
    makeFolder(run, made);
  } catch (error) {
    undo();
    throw localError(`make the data directory "${home}"`, error, HOME_HINT);
  }
  return undo;
}

/** VM processes pass through. Not with `recursive`: that never returns for a folder in /proc. */
function makeFolder(folder: string, made: string[]): void {
  try {
    mkdirSync(folder, { mode: 0o711 });
    made.push(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && isFolder(folder)) return;
    if (code === "EEXIST") throw notFolder(folder);
    if (code !== "ENOENT" || isFolder(dirname(folder))) throw error;
    makeFolder(dirname(folder), made);
    mkdirSync(folder, { mode: 0o711 });
    made.push(folder);
  }
}

function notFolder(path: string): PerdureError {
  const message = `Cannot use "${path}" for the data directory: it is not a folder`;
  return new PerdureError("bad_request", message, { hint: HOME_HINT });
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
