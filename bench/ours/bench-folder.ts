/** Where a benchmark works: a new folder beside the default data directory, on the same file system. */
import { chmod, mkdtemp } from "node:fs/promises";
import path from "node:path";
import { daemonPaths } from "@perdure/sdk";
import type { Cleanup } from "../cleanup.ts";
import { removeFolder } from "./daemon.ts";

/** PERDURE_BENCH_FOLDER names another place. The folder goes with `cleanup`. */
export async function openBenchFolder(cleanup: Cleanup): Promise<string> {
  const beside = process.env["PERDURE_BENCH_FOLDER"] ?? path.dirname(daemonPaths({}).home);
  const folder = await mkdtemp(path.join(beside, "perdure-bench-"));
  cleanup.add(folder, () => removeFolder(folder));
  // VM processes are other users, and pass through it.
  await chmod(folder, 0o711);
  return folder;
}
