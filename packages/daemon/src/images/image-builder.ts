/**
 * Builds images. The slow parts, a kernel and a root file system, are kept by the digest of their
 * recipe, so a new guest agent costs only a new initramfs. One build at a time per directory; all of
 * it happens in temporary directories that get their names when they are whole.
 */
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { PerdureError, sha256Hex } from "@perdure/protocol";
import type { Digest } from "@perdure/protocol";
import type { Image, ImageGuestAgent } from "../core/ports/image-source.ts";
import { withFileLock } from "../file-lock.ts";
import { makeBuildDirectory, removeLeftovers } from "./durable-file.ts";
import { describeGuestAgent } from "./guest-agent.ts";
import { fileNames } from "./image-record.ts";
import type { ImageRecord } from "./image-record.ts";
import { buildInitramfs } from "./initramfs.ts";
import { PartStore } from "./part-store.ts";
import { assertImageName, publishImage } from "./publish-image.ts";
import { recipeDigest, recipes } from "./recipe.ts";
import type { ImageKind } from "./recipe.ts";

export interface BuildOptions {
  /** The images directory; made where absent. */
  readonly directory: string;
  /** Name that the image gets. */
  readonly name: string;
  readonly kind: ImageKind;
  /** The guest agent's program. */
  readonly guestAgentPath: string;
  /** Builds the kernel and root file system anew, with the packages of today. */
  readonly rebuild?: boolean;
  /** Called with each step that may take a second or more. */
  readonly report?: (line: string) => void;
}

/**
 * Builds an image, or finds that it is there already, and gives it its name.
 *
 * @throws PerdureError `bad_request`, `disk_full`, `image_build_failed`, `image_lint_failed`
 */
export async function buildImage(options: BuildOptions): Promise<Image> {
  const { directory, name } = options;
  assertImageName(name);
  const report = options.report ?? (() => undefined);
  await mkdir(path.join(directory, "names"), { recursive: true });
  await mkdir(path.join(directory, "parts"), { recursive: true });
  return withFileLock(
    path.join(directory, ".lock"),
    async () => {
      await removeLeftovers(directory);
      await removeLeftovers(path.join(directory, "parts"));
      const workspace = await makeBuildDirectory(directory);
      try {
        return await build(options, workspace, report);
      } finally {
        await rm(workspace, { recursive: true, force: true });
      }
    },
    () => report("waiting for another build to end"),
  );
}

async function build(
  options: BuildOptions,
  workspace: string,
  report: (line: string) => void,
): Promise<Image> {
  const { directory, kind, name } = options;
  const recipe = recipes[kind];
  const agent = await readFile(options.guestAgentPath).catch((error: unknown) => {
    throw new PerdureError(
      "image_build_failed",
      `Cannot read the guest agent "${options.guestAgentPath}"`,
      { hint: 'Run "make -C guest" first.', cause: error },
    );
  });
  const parts = new PartStore(path.join(directory, "parts"), workspace, options, report);
  const kernel = await parts.kernel(recipe.kernel);
  const rootfs = recipe.rootfs === null ? null : await parts.rootfs(recipe.rootfs);

  report("assembling the image");
  const initramfs = buildInitramfs(
    agent,
    await Promise.all(
      kernel.modules.map(async (module) => {
        return { name: module, content: await readFile(path.join(kernel.path, `${module}.ko`)) };
      }),
    ),
  );
  const record: ImageRecord = {
    version: 1,
    name,
    kernel: kernel.kernel,
    initramfs: { sha256: sha256Hex(initramfs) as Digest, bytes: initramfs.length },
    rootfs: rootfs?.rootfs ?? null,
    kernelVersion: kernel.release,
    commandLine: recipe.commandLine,
    guestAgent: describeGuestAgent(agent) satisfies ImageGuestAgent,
    packages: rootfs?.packages ?? [],
    recipe: recipeDigest(recipe),
  };
  const initramfsPath = path.join(workspace, fileNames.initramfs);
  await writeFile(initramfsPath, initramfs);
  return publishImage(directory, workspace, record, {
    kernel: path.join(kernel.path, fileNames.kernel),
    initramfs: initramfsPath,
    rootfs: rootfs === null ? null : path.join(rootfs.path, fileNames.rootfs),
  });
}
