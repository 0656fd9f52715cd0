/**
 * Builds an image from a user's recipe: the default image's root file system with more packages and a
 * finish script, the kernel and the guest agent of the default image.
 *
 * A recipe is trusted as the daemon is: the scripts of its packages and its own run as root (where the
 * daemon is not root, as the root of a user namespace) with the new root file system as theirs. That keeps an
 * honest script off the host's files; it is no boundary.
 */
import path from "node:path";
import { digestOf } from "@perdure/protocol";
import type { Digest, ImageConfig, Recipe } from "@perdure/protocol";
import type { Image } from "../core/ports/image-source.ts";
import { withFileLock } from "../file-lock.ts";
import { baseImage } from "./base-image.ts";
import { finishRootfs } from "./finish-rootfs.ts";
import { assertTools } from "./host-tool.ts";
import { fileNames } from "./image-record.ts";
import type { ImageRecord } from "./image-record.ts";
import { PartStore } from "./part-store.ts";
import { publishImage } from "./publish-image.ts";
import { defaultHostName, recipeDigest, recipes, suite } from "./recipe.ts";
import type { RootfsRecipe } from "./recipe.ts";

export interface RecipeBuild {
  /** The images directory. */
  readonly directory: string;
  /** A folder in it that is this build's own, and is removed by who made it. */
  readonly workspace: string;
  readonly name: string;
  readonly recipe: Recipe;
  readonly report: (line: string) => void;
}

/** @throws `disk_full`, `host_not_ready`, `image_build_failed`, `image_lint_failed`, `image_not_found` */
export async function buildFromRecipe(build: RecipeBuild): Promise<Image> {
  const { directory, workspace, name, recipe, report } = build;
  const base = await baseImage(directory);
  await assertTools(["mmdebstrap", "tar", "mke2fs", "dumpe2fs", "debugfs", "e2fsck"]);
  const rootfsRecipe = rootfsRecipeOf(recipe);
  return withFileLock(
    path.join(directory, ".lock"),
    async () => {
      const parts = new PartStore(path.join(directory, "parts"), workspace, {}, report);
      const rootfs = await parts.rootfs(rootfsRecipe);
      report("publishing the image");
      const config = configOf(recipe);
      const record: ImageRecord = {
        version: 1,
        name,
        kernel: { sha256: base.kernel.sha256, bytes: base.kernel.bytes },
        initramfs: { sha256: base.initramfs.sha256, bytes: base.initramfs.bytes },
        rootfs: rootfs.rootfs,
        kernelVersion: base.kernelVersion,
        commandLine: base.commandLine,
        guestAgent: base.guestAgent,
        packages: rootfs.packages,
        recipe: digestOf({ base: base.recipe, rootfs: recipeDigest(rootfsRecipe) }) as Digest,
        ...(config === null ? {} : { config }),
      };
      return publishImage(directory, workspace, record, {
        kernel: base.kernel.path,
        initramfs: base.initramfs.path,
        rootfs: path.join(rootfs.path, fileNames.rootfs),
      });
    },
    () => report("waiting for another build to end"),
  );
}

/** The default root file system with what the recipe adds. What the build leaves behind is removed last. */
export function rootfsRecipeOf(recipe: Recipe): RootfsRecipe {
  const { rootfs } = recipes.debian;
  if (rootfs === null) throw new Error("The default image has a root file system");
  const packages = [...new Set([...rootfs.packages, ...recipe.packages])].sort();
  return {
    ...rootfs,
    packages,
    finish: finishRootfs(suite, defaultHostName, recipe.finish),
    ...(recipe.setuid.length === 0 ? {} : { setuid: [...recipe.setuid].sort() }),
    bytes: null,
  };
}

/** Null where the recipe says nothing of how programs run: then it is as in the default image. */
function configOf(recipe: Recipe): ImageConfig | null {
  const { user, cwd, env, entrypoint, cmd, start } = recipe;
  const says = [user, cwd, ...Object.keys(env), ...entrypoint, ...cmd];
  if (says.every((each) => each === undefined)) return null;
  return {
    user: user ?? "user",
    cwd: cwd ?? null,
    ...{ env, entrypoint, cmd, start },
    stopSignal: null,
    labels: {},
    exposedPorts: [],
    volumes: [],
  };
}
