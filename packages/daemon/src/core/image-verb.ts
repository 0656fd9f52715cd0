/**
 * Everything that can be asked of images. They belong to no agent, so these verbs stand beside the engine and
 * not in its lanes; what keeps an image from being removed under an agent is in image-hold.ts.
 */
import { PerdureError, type ImageEvent, type ImageView, type Recipe } from "@perdure/protocol";
import type { Parts } from "./parts.ts";
import type { Image } from "./ports/image-source.ts";
import type { ImageWork, ImageWorkshop, ImportWish } from "./ports/image-workshop.ts";

/** Every method rejects with a `PerdureError`. */
export interface ImageCommands {
  /** By name, without their packages. */
  images(): Promise<readonly ImageView[]>;
  /** @throws `image_not_found` */
  image(nameOrId: string): Promise<ImageView>;
  /**
   * Resolves when all of `archive` is there; then what is told ends with `image`, or throws. Aborting
   * `signal`, also before the first event is asked for, ends the work and leaves nothing.
   */
  importImage(
    wish: ImportWish,
    archive: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ImageEvent>>;
  /** As `importImage`. */
  buildImage(name: string, recipe: Recipe, signal: AbortSignal): Promise<AsyncIterable<ImageEvent>>;
  /**
   * By a name that shares its image with others only the name goes. The answer has the names that are left.
   *
   * @throws `image_not_found`, `image_in_use`
   */
  removeImage(nameOrId: string): Promise<ImageView>;
}

export interface ImageVerbParts extends Pick<
  Parts,
  "images" | "imageHolds" | "state" | "templates" | "spares" | "log"
> {
  readonly workshop: ImageWorkshop;
}

export class ImageVerbs implements ImageCommands {
  readonly #parts: ImageVerbParts;

  constructor(parts: ImageVerbParts) {
    this.#parts = parts;
  }

  async images(): Promise<readonly ImageView[]> {
    const { images, state } = this.#parts;
    const agents = await state.allAgents();
    const views: ImageView[] = [];
    for (const image of await images.list()) {
      const users = agents.filter((agent) => agent.image.id === image.id).map(({ name }) => name);
      // One may be removed meanwhile.
      const view = await this.#view(image, users).catch(() => null);
      if (view !== null) views.push({ ...view, packages: [] });
    }
    const byName = (view: ImageView): string => `${view.names[0] ?? `~${view.madeAs}`} ${view.id}`;
    return views.sort((a, b) => (byName(a) < byName(b) ? -1 : 1));
  }

  async image(nameOrId: string): Promise<ImageView> {
    const image = await this.#parts.images.resolve(nameOrId);
    return this.#view(image, await this.#usersOf(image));
  }

  async importImage(
    wish: ImportWish,
    archive: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ImageEvent>> {
    return this.#events(await this.#parts.workshop.receive(wish, archive), signal);
  }

  async buildImage(
    name: string,
    recipe: Recipe,
    signal: AbortSignal,
  ): Promise<AsyncIterable<ImageEvent>> {
    return this.#events(await this.#parts.workshop.build(name, recipe), signal);
  }

  async removeImage(nameOrId: string): Promise<ImageView> {
    const { images, imageHolds, workshop, templates, spares, log } = this.#parts;
    return imageHolds.alone(async (release) => {
      const image = await images.resolve(nameOrId);
      const view = await this.#view(image, await this.#usersOf(image));
      const { isBase } = await workshop.facts(image);
      const left = view.names.filter((name) => name !== nameOrId);
      if (nameOrId !== image.id && left.length > 0 && left.length < view.names.length) {
        await workshop.unname(nameOrId);
        return { ...view, names: left };
      }
      if (isBase) {
        throw new PerdureError(
          "image_in_use",
          `Cannot remove image "${nameOrId}": imports and builds take their kernel from it`,
        );
      }
      await this.#assertUnused(image, nameOrId);
      spares.forget(new Set(await templates.forget(image.id)));
      await release(image.id);
      await workshop.remove(image.id);
      log("info", "An image was removed", { image: image.id, name: image.name });
      return { ...view, names: [] };
    });
  }

  async #assertUnused(image: Image, asked: string): Promise<void> {
    const users = await this.#parts.imageHolds.usersOf(image.id);
    if (users.length === 0) return;
    const shown = users
      .slice(0, agentsShown)
      .map((name) => (name === null ? "one that is being created" : `"${name}"`))
      .join(", ");
    const more = users.length > agentsShown ? ` and ${users.length - agentsShown} more` : "";
    throw new PerdureError(
      "image_in_use",
      `Cannot remove image "${asked}": agents stand on it: ${shown}${more}`,
      { hint: "Remove those agents first." },
    );
  }

  async #usersOf({ id }: Image): Promise<string[]> {
    const agents = await this.#parts.state.allAgents();
    return agents.filter(({ image }) => image.id === id).map(({ name }) => name);
  }

  async #view(image: Image, agents: readonly string[]): Promise<ImageView> {
    const { names, storedBytes, createdAtMs } = await this.#parts.workshop.facts(image);
    return {
      id: image.id,
      names: [...names],
      madeAs: image.name,
      bytes: image.rootfs?.bytes ?? 0,
      storedBytes,
      kernelVersion: image.kernelVersion,
      guestAgentVersion: image.guestAgent.version,
      config: image.config,
      archive:
        image.archive === null ? null : { ...image.archive, notices: [...image.archive.notices] },
      packages: [...image.packages],
      agents: [...agents],
      createdAtMs,
    };
  }

  /** The work goes on whether or not its events are read, until `signal` aborts. */
  #events(work: ImageWork, signal: AbortSignal): AsyncIterable<ImageEvent> {
    const told: ImageEvent[] = [];
    let changed = Promise.withResolvers<undefined>();
    const tell = (event: ImageEvent): void => {
      told.push(event);
      changed.resolve(undefined);
      changed = Promise.withResolvers();
    };
    const finished = work
      .finish(signal, (message) => tell({ type: "progress", message }))
      .then(async (image) =>
        tell({ type: "image", image: await this.#view(image, await this.#usersOf(image)) }),
      );
    finished.catch(() => undefined);
    return (async function* (): AsyncGenerator<ImageEvent> {
      for (;;) {
        const event = told.shift();
        if (event !== undefined) {
          yield event;
          if (event.type === "image") return;
        } else {
          await Promise.race([changed.promise, finished]);
        }
      }
    })();
  }
}

const agentsShown = 5;
