/**
 * For tests of the API, the SDK and the CLI: images in a map. An archive is an image whose id is its digest,
 * unless it begins with `broken`; one that begins with `slow` is never finished, only cancelled.
 */
import { createHash } from "node:crypto";
import { PerdureError } from "@perdure/protocol";
import type { Digest, ImageEvent, ImageView, Recipe } from "@perdure/protocol";
import type { ImageCommands } from "../../../packages/daemon/src/core/image-verb.ts";
import type { ImportWish } from "../../../packages/daemon/src/core/ports/image-workshop.ts";

export interface FakeImages extends ImageCommands {
  /** What was asked for, in order. */
  readonly asked: (ImportWish | { readonly name: string; readonly recipe: Recipe })[];
  /** How many imports were cancelled. */
  cancelled: number;
}

export function createFakeImages(): FakeImages {
  const images = new Map<string, ImageView>();
  const asked: FakeImages["asked"] = [];
  const put = (id: Digest, name: string): ImageView => {
    for (const [other, image] of images) {
      images.set(other, { ...image, names: image.names.filter((each) => each !== name) });
    }
    const names = [...(images.get(id)?.names ?? []), name].sort();
    const image = sampleImage(id, names);
    images.set(id, image);
    return image;
  };
  put("d".repeat(64) as Digest, "debian");
  const find = (nameOrId: string): ImageView => {
    const all = [...images.values()];
    const found = images.get(nameOrId) ?? all.find(({ names }) => names.includes(nameOrId));
    if (found !== undefined) return found;
    throw new PerdureError("image_not_found", `Cannot use image "${nameOrId}": there is none`);
  };
  const fake: FakeImages = {
    asked,
    cancelled: 0,
    images: () => Promise.resolve([...images.values()]),
    image: async (nameOrId) => {
      await Promise.resolve();
      return find(nameOrId);
    },
    importImage: async (wish, archive, signal) => {
      asked.push(wish);
      const bytes = Buffer.concat(await Array.fromAsync(archive));
      const id = createHash("sha256").update(bytes).digest("hex") as Digest;
      return events(bytes.toString("latin1"), signal, fake, () => put(id, wish.name));
    },
    buildImage: (name, recipe, signal) => {
      asked.push({ name, recipe });
      const id = createHash("sha256").update(JSON.stringify(recipe)).digest("hex") as Digest;
      return Promise.resolve(events(recipe.finish, signal, fake, () => put(id, name)));
    },
    removeImage: async (nameOrId) => {
      await Promise.resolve();
      const image = find(nameOrId);
      if (image.names.includes("debian")) {
        throw new PerdureError("image_in_use", `Cannot remove image "${nameOrId}": it is the base`);
      }
      const left = nameOrId === image.id ? [] : image.names.filter((name) => name !== nameOrId);
      if (left.length === 0) images.delete(image.id);
      else images.set(image.id, { ...image, names: left });
      return { ...image, names: left };
    },
  };
  return fake;
}

async function* events(
  content: string,
  signal: AbortSignal,
  fake: FakeImages,
  make: () => ImageView,
): AsyncGenerator<ImageEvent> {
  yield { type: "progress", message: "reading layer 1 of 1" };
  if (content.startsWith("slow")) {
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener("abort", () => resolve());
    });
    fake.cancelled += 1;
    throw new PerdureError("cancelled", "The image is not made: it was cancelled");
  }
  if (content.startsWith("broken")) {
    throw new PerdureError("image_archive_invalid", "Cannot import the archive: it is broken");
  }
  yield { type: "image", image: make() };
}

function sampleImage(id: Digest, names: string[]): ImageView {
  return {
    id,
    names,
    madeAs: names[0] ?? "sample",
    bytes: 1024 * 1024 * 1024,
    storedBytes: 300 * 1024 * 1024,
    kernelVersion: "6.1.0-57-cloud-amd64",
    guestAgentVersion: "0.2.0",
    config: names.includes("debian")
      ? null
      : {
          user: "app",
          cwd: "/srv",
          env: { PATH: "/bin" },
          entrypoint: ["/app"],
          cmd: ["serve"],
          start: true,
          stopSignal: "SIGTERM",
          labels: { maintainer: "someone" },
          exposedPorts: ["80/tcp"],
          volumes: [],
        },
    archive: names.includes("debian")
      ? null
      : { digest: `sha256:${id}`, reference: "app:1", notices: ["Device nodes were left out"] },
    packages: [{ name: "bash", version: "5.2" }],
    agents: [],
    createdAtMs: 1_700_000_000_000,
  };
}
