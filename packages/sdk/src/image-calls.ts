/** Images on the daemon's host: `perdure.images`. Examples run as they stand, with `perdure` open. */
import { imageEventSchema, PerdureError, routes } from "@perdure/protocol";
import type { ImageView, RecipeInput } from "@perdure/protocol";
import { Caller } from "./caller.ts";
import { jsonValues } from "./json-stream.ts";
import type { CallOptions } from "./transport.ts";

export interface ImageWorkOptions extends CallOptions {
  /** Called with each step that the daemon begins. */
  readonly onProgress?: (message: string) => void;
}

export interface ImportOptions extends ImageWorkOptions {
  /** Which image is meant where the archive holds several, as the archive calls it. */
  readonly ref?: string;
  /** Whether agents start its program by themselves. Default: true. */
  readonly start?: boolean;
}

export class ImageCalls extends Caller {
  /**
   * Makes an image from an archive of a container image: `oci-archive`, or what `docker save` writes.
   * Aborting `signal` ends the work, and leaves nothing.
   *
   * @param name stands for the image from then on
   * @throws `image_archive_invalid`, `too_large`, `not_supported` for another platform, `disk_full`
   * @example
   * const archive = new TextEncoder().encode("what docker save wrote");
   * const image = await perdure.images.import("web", archive, { onProgress: console.log });
   * await perdure.create({ name: "web-1", image: image.id });
   */
  import(
    name: string,
    archive: Uint8Array | AsyncIterable<Uint8Array> | Blob,
    options: ImportOptions = {},
  ): Promise<ImageView> {
    const { ref, start, onProgress, signal } = options;
    const call = { query: { name, ref, start }, body: archive, signal };
    return this.#made(this.callForStream(routes.importImage, {}, call), onProgress);
  }

  /**
   * Builds an image: the default one with more packages, a finish script, and what programs run with.
   * Aborting `signal` ends the work, and leaves nothing.
   *
   * @throws `bad_request`, `image_build_failed`, `image_lint_failed`, `disk_full`, `host_not_ready`
   * @example
   * const recipe = { packages: ["nodejs"], env: { NODE_ENV: "production" } };
   * const { id } = await perdure.images.build("node", recipe);
   */
  build(name: string, recipe: RecipeInput, options: ImageWorkOptions = {}): Promise<ImageView> {
    const { onProgress, signal } = options;
    const call = { json: { name, recipe }, signal };
    return this.#made(this.callForStream(routes.buildImage, {}, call), onProgress);
  }

  /**
   * Images by name, without their packages.
   *
   * @example
   * for (const { id, names } of await perdure.images.list()) console.log(id, names.join(" "));
   */
  async list(options: CallOptions = {}): Promise<ImageView[]> {
    return (await this.call(routes.images, {}, options)).images;
  }

  /**
   * An image, with its packages and the agents that stand on it.
   *
   * @param image name or id
   * @throws `image_not_found`
   * @example
   * const { config, packages } = await perdure.images.show("debian");
   */
  show(image: string, options: CallOptions = {}): Promise<ImageView> {
    return this.call(routes.image, { image }, options);
  }

  /**
   * Removes an image and frees its files. By a name that shares its image with others, only the name
   * goes; the answer has those that are left.
   *
   * @param image name or id
   * @throws `image_not_found`, `image_in_use` while an agent stands on it
   * @example
   * await perdure.images.build("short-lived", {});
   * await perdure.images.remove("short-lived");
   */
  remove(image: string, options: CallOptions = {}): Promise<ImageView> {
    return this.call(routes.removeImage, { image }, options);
  }

  async #made(
    answer: ReturnType<Caller["callForStream"]>,
    onProgress: ImageWorkOptions["onProgress"],
  ): Promise<ImageView> {
    const { bytes } = await answer;
    for await (const event of jsonValues(imageEventSchema, bytes)) {
      if (event.type === "image") return event.image;
      if (event.type === "error") throw PerdureError.fromBody(event.error);
      onProgress?.(event.message);
    }
    throw new PerdureError("interrupted", "The daemon went away before the image was made", {
      hint: '"perdure image list" shows whether it is there.',
    });
  }
}
