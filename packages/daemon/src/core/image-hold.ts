/**
 * Image holds: an image is held from before the first thing that a new agent needs of it until after the last
 * agent that stands on it is gone, so that nobody removes it meanwhile: neither this daemon nor one that
 * shares the images folder.
 */
import { PerdureError, type Digest } from "@perdure/protocol";
import { Lane } from "./lane.ts";
import type { Clock } from "./ports/clock.ts";
import type { ImageUses } from "./ports/image-workshop.ts";
import type { Log } from "./ports/log.ts";
import type { StateStore } from "./ports/state-store.ts";

export interface ImageHoldParts {
  readonly state: Pick<StateStore, "allAgents">;
  readonly imageUses: ImageUses;
  readonly clock: Pick<Clock, "wait">;
  readonly log: Log;
}

/** From an agent's end until it is looked at who is left: agents often go together. */
const LOOK_AFTER_MS = 1_000;

export class ImageHolds {
  readonly #parts: ImageHoldParts;
  /** Holding, letting go and removing are decided one at a time. */
  readonly #lane = new Lane();
  /** Agents that are being made, whose rows may not be there yet. */
  readonly #making = new Map<Digest, number>();
  /** Images that agents went away from since it was looked last. */
  readonly #left = new Set<Digest>();
  readonly #closing = new AbortController();
  #isLooking = false;

  constructor(parts: ImageHoldParts) {
    this.#parts = parts;
  }

  /** For an agent whose row is stored. @throws `image_not_found` */
  hold(image: Digest): Promise<void> {
    return this.#lane.exclusive(() => this.#parts.imageUses.hold(image));
  }

  /** Runs `make`, which stores the row of a new agent, while the image is held. @throws `image_not_found` */
  async during<T>(image: Digest, make: () => Promise<T>): Promise<T> {
    await this.#lane.exclusive(async () => {
      await this.#parts.imageUses.hold(image);
      this.#making.set(image, (this.#making.get(image) ?? 0) + 1);
    });
    try {
      return await make();
    } catch (error) {
      this.leave(image);
      throw error;
    } finally {
      const others = (this.#making.get(image) ?? 1) - 1;
      if (others > 0) this.#making.set(image, others);
      else this.#making.delete(image);
    }
  }

  /** An agent that stood on the image is gone, or came to nothing. */
  leave(image: Digest): void {
    this.#left.add(image);
    if (this.#isLooking) return;
    this.#isLooking = true;
    void this.#lookLater().finally(() => (this.#isLooking = false));
  }

  /** Names of the agents that stand on the image; null for those that are being made. */
  async usersOf(image: Digest): Promise<readonly (string | null)[]> {
    const agents = await this.#parts.state.allAgents();
    const names = agents.filter((agent) => agent.image.id === image).map(({ name }) => name);
    return this.#making.has(image) ? [...names, null] : names;
  }

  /** Runs `work` while no image is held or let go of; `release` lets go of one in it. */
  alone<T>(work: (release: (image: Digest) => Promise<void>) => Promise<T>): Promise<T> {
    return this.#lane.exclusive(() => work((image) => this.#parts.imageUses.release(image)));
  }

  /** What is held after a restart is what agents stand on. */
  async reconcile(): Promise<void> {
    const { state, imageUses } = this.#parts;
    const needed = new Set((await state.allAgents()).map(({ image }) => image.id));
    for (const image of await imageUses.held()) {
      if (!needed.has(image)) await imageUses.release(image);
    }
    // One that is gone already is told by whoever needs it.
    for (const image of needed) await imageUses.hold(image).catch(() => undefined);
  }

  close(): void {
    this.#closing.abort();
  }

  async #lookLater(): Promise<void> {
    try {
      while (this.#left.size > 0) {
        await this.#parts.clock.wait(LOOK_AFTER_MS, this.#closing.signal);
        const left = [...this.#left];
        this.#left.clear();
        await this.alone((release) => this.#letGo(left, release));
      }
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      // Held for too long is no harm; the next start sees to it.
      const { message } = PerdureError.from(error);
      this.#parts.log("warn", "An image could not be let go of", { message });
    }
  }

  async #letGo(
    images: readonly Digest[],
    release: (image: Digest) => Promise<void>,
  ): Promise<void> {
    const agents = await this.#parts.state.allAgents();
    const needed = new Set(agents.map(({ image }) => image.id));
    for (const image of images) {
      if (!needed.has(image) && !this.#making.has(image)) await release(image);
    }
  }
}
