/**
 * The process that imports or builds an image: `work-process.ts JOB`. A process of its own, because what it
 * reads is hostile and what it computes is much, and because it can be ended with all the tools that it runs:
 * it leads a process group.
 *
 * Its standard input is its lifeline. When that ends, nobody waits for the result any more, or the daemon
 * is dead: the tools are ended, the workspace is removed, and the process ends itself.
 */
import { rm } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import { importArchive } from "../oci/import-archive.ts";
import { buildFromRecipe } from "../recipe-build.ts";
import type { Image } from "../../core/ports/image-source.ts";
import type { Job, WorkLine } from "./work.ts";

const job = JSON.parse(process.argv[2] ?? "") as Job;
let abandoned: Promise<void> | undefined;
process.stdin.resume();
process.stdin.once("close", leave);
process.stdout.on("error", leave);

try {
  const image = await perform(job);
  say({ type: "done", id: image.id });
} catch (error) {
  say({ type: "error", error: PerdureError.from(error).toJSON() });
}
await (abandoned ?? Promise.resolve());
process.exit();

function leave(): void {
  abandoned ??= abandon();
}

function perform(work: Job): Promise<Image> {
  const report = (message: string): void => say({ type: "progress", message });
  switch (work.kind) {
    case "import":
      return importArchive({ ...work, report });
    case "build":
      return buildFromRecipe({ ...work, report });
  }
}

function say(line: WorkLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function abandon(): Promise<void> {
  // To the whole group but this process.
  process.on("SIGTERM", () => undefined);
  process.kill(-process.pid, "SIGTERM");
  await rm(job.workspace, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }).catch(
    () => undefined,
  );
  process.kill(-process.pid, "SIGKILL");
}
