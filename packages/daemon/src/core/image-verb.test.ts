/** Images and the agents that stand on them: who may remove what, and when. */
import { beforeEach, describe, expect, test } from "vitest";
import { recipeSchema, type Digest, type ImageEvent } from "@perdure/protocol";
import { image as sample } from "../../../../test/simulation/image-source.ts";
import { create, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { ImageHolds } from "./image-hold.ts";
import { ImageVerbs } from "./image-verb.ts";
import type { Image, ImageSource } from "./ports/image-source.ts";
import type { ImageWorkshop } from "./ports/image-workshop.ts";
import { SparePlan } from "./spare-plan.ts";

let world: World;
let holds: ImageHolds;
let verbs: ImageVerbs;
/** What stands for what. */
let names: Map<string, Digest>;
let removed: Digest[];
let forgotten: Digest[];
let isBase: boolean;
/** Images of the workshop: finished by `resolve`. */
let finishing: PromiseWithResolvers<Image>;
let dropped: number;
let told: (message: string) => void;

const never = new AbortController().signal;
const other: Image = { ...sample, id: "a".repeat(64) as Digest, name: "other" };

beforeEach(() => {
  world = new World();
  names = new Map([
    ["base", sample.id],
    ["alias", sample.id],
    ["other", other.id],
  ]);
  removed = [];
  forgotten = [];
  isBase = false;
  dropped = 0;
  finishing = Promise.withResolvers();
  const work = {
    finish: (signal: AbortSignal, report: (message: string) => void) => {
      told = report;
      signal.addEventListener("abort", () => finishing.reject(new Error("it was cancelled")));
      return finishing.promise;
    },
    drop: () => {
      dropped += 1;
      return Promise.resolve();
    },
  };
  const workshop: ImageWorkshop = {
    receive: async (_wish, archive) => {
      await Array.fromAsync(archive);
      return work;
    },
    build: () => Promise.resolve(work),
    facts: ({ id }) =>
      Promise.resolve({
        names: [...names].filter(([, of]) => of === id).map(([name]) => name),
        storedBytes: 5,
        createdAtMs: 7,
        isBase,
      }),
    unname: (name) => Promise.resolve(void names.delete(name)),
    remove: (id) => Promise.resolve(void removed.push(id)),
  };
  const images: ImageSource = {
    resolve: (nameOrId) => {
      const id = names.get(nameOrId) ?? nameOrId;
      const found = [sample, other].find((each) => each.id === id);
      return found === undefined ? Promise.reject(new Error("none")) : Promise.resolve(found);
    },
    list: () => Promise.resolve([other, sample]),
    describe: () => Promise.reject(new Error("not here")),
    adopt: () => Promise.reject(new Error("not here")),
    tidy: () => Promise.resolve(),
  };
  const log = (): void => undefined;
  const { state, imageUses } = world;
  holds = new ImageHolds({ state, imageUses, clock: world.time.clock(world.life), log });
  const templates = {
    open: () => Promise.resolve(null),
    build: () => Promise.resolve(),
    forget: (id: Digest) => Promise.resolve([forgotten.push(id), id].slice(1) as Digest[]),
  };
  const spares = new SparePlan(world.substrate, { specsMax: 1, sparesPerSpec: 0 });
  verbs = new ImageVerbs({ images, imageHolds: holds, workshop, state, templates, spares, log });
});

describe("an image", () => {
  test("is shown with the agents that stand on it", async () => {
    await world.execute(create("a1"));
    expect(await verbs.image("alias")).toMatchObject({
      id: sample.id,
      names: ["base", "alias"],
      agents: ["a1"],
      storedBytes: 5,
    });
    expect((await verbs.images()).map(({ names: of }) => of)).toEqual([
      ["base", "alias"],
      ["other"],
    ]);
  });

  test("is not removed while an agent stands on it, asleep or not, and the agent is named", async () => {
    await world.execute(create("a1"));
    await world.execute(verb("sleep", "a1"));
    await expect(verbs.removeImage(sample.id)).rejects.toMatchObject({
      code: "image_in_use",
      message: expect.stringContaining('"a1"') as string,
    });
    expect(removed).toEqual([]);
    await world.execute(verb("remove", "a1"));
    expect(await verbs.removeImage(sample.id)).toMatchObject({ id: sample.id, names: [] });
    expect(removed).toEqual([sample.id]);
    expect(forgotten).toEqual([sample.id]);
  });

  test("that has other names loses only the one, also while agents stand on it", async () => {
    await world.execute(create("a1"));
    expect(await verbs.removeImage("alias")).toMatchObject({ names: ["base"] });
    await expect(verbs.removeImage("base")).rejects.toMatchObject({ code: "image_in_use" });
    expect([removed, [...names.keys()]]).toEqual([[], ["base", "other"]]);
  });

  test("that others take their kernel from stays", async () => {
    isBase = true;
    await expect(verbs.removeImage("other")).rejects.toMatchObject({ code: "image_in_use" });
    expect(removed).toEqual([]);
  });

  test("is not removed while an agent of it is being made, nor used while it is removed", async () => {
    const making = Promise.withResolvers<undefined>();
    const made = holds.during(other.id, () => making.promise);
    await expect(verbs.removeImage("other")).rejects.toMatchObject({
      code: "image_in_use",
      message: expect.stringContaining("being created") as string,
    });
    making.resolve(undefined);
    await made;
    const removing = verbs.removeImage("other");
    let begun = false;
    const later = holds.during(other.id, () => Promise.resolve((begun = true)));
    await removing;
    expect(begun).toBe(false);
    await later;
  });
});

describe("a hold on an image", () => {
  const held = () => world.imageUses.held();

  test("lasts from before an agent's row until after its last one is gone", async () => {
    await world.execute(create("a1"));
    await world.execute(create("a2"));
    expect(await held()).toEqual([sample.id]);
    await world.execute(verb("remove", "a1"));
    await world.time.advance(2_000);
    expect(await held()).toEqual([sample.id]);
    await world.execute(verb("remove", "a2"));
    await world.time.advance(2_000);
    expect(await held()).toEqual([]);
  });

  test("of an agent that came to nothing ends", async () => {
    world.faults.fail("templates.build", "template_failed", { times: 1 });
    await expect(world.execute(create("a1"))).rejects.toThrow();
    await world.time.advance(2_000);
    expect(await held()).toEqual([]);
  });

  test("is what agents stand on, after a restart", async () => {
    await world.execute(create("a1"));
    await world.imageUses.release(sample.id);
    await world.imageUses.hold(other.id);
    await world.restart();
    expect(await held()).toEqual([sample.id]);
  });
});

describe("an import", () => {
  const archive = async function* (): AsyncGenerator<Uint8Array> {
    yield await Promise.resolve(Buffer.from("archive"));
  };

  test("tells what is done, then the image", async () => {
    const events = await verbs.importImage({ name: "app", start: true }, archive(), never);
    told("one");
    told("two");
    finishing.resolve(other);
    expect(await Array.fromAsync(events)).toMatchObject([
      { type: "progress", message: "one" },
      { type: "progress", message: "two" },
      { type: "image", image: { id: other.id } },
    ]);
  });

  test("that fails throws, after what was told before", async () => {
    const events = await verbs.buildImage("app", recipeSchema.parse({}), never);
    told("one");
    finishing.reject(new Error("no room"));
    const seen: ImageEvent[] = [];
    const reading = (async () => {
      for await (const event of events) seen.push(event);
    })();
    await expect(reading).rejects.toThrow("no room");
    expect(seen).toEqual([{ type: "progress", message: "one" }]);
  });

  test("ends when its caller is gone, whether or not its events are read", async () => {
    const gone = new AbortController();
    await verbs.importImage({ name: "app", start: true }, archive(), gone.signal);
    gone.abort();
    await expect(finishing.promise).rejects.toThrow("it was cancelled");
    expect(dropped).toBe(0);
  });
});
