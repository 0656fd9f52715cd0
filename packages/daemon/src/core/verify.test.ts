/** Verification of an agent that goes on meanwhile: what is damaged, what is gone, and who waits for whom. */
import { beforeEach, describe, expect, test } from "vitest";
import type { CheckpointId, VerifyEvent } from "@perdure/protocol";
import { layerPath } from "../../../../test/simulation/checkpoint-folder.ts";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import { checkpoint, count, create, verb } from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";

let world: World;
beforeEach(async () => {
  world = new World();
  await world.execute(create("a1"));
  await count(world, "a1", 10);
  await world.execute(checkpoint("a1", "ten"));
  await count(world, "a1", 5);
  await world.execute(verb("sleep", "a1"));
});

const never = new AbortController().signal;
const begin = (wanted?: string, signal = never): Promise<AsyncIterable<VerifyEvent>> =>
  world.run(
    world.engine.verify(
      { tenant: "default", agent: "a1", ...(wanted === undefined ? {} : { checkpoint: wanted }) },
      signal,
    ),
  );

async function verify(wanted?: string): Promise<VerifyEvent[]> {
  return world.run(Array.fromAsync(await begin(wanted)));
}

const verdicts = (events: readonly VerifyEvent[]): string[] =>
  events.flatMap((event) =>
    event.type === "checkpoint" ? [`${event.name ?? event.kind} ${event.verdict}`] : [],
  );

async function idOf(name: string | null): Promise<CheckpointId> {
  const { id } = await world.agent("a1");
  const row = (await world.state.checkpoints(id)).find((found) => found.name === name);
  if (row === undefined) throw new Error("There is no such checkpoint");
  return row.id;
}

/** Turns a byte of the devices of a checkpoint over. */
async function damage(name: string | null): Promise<void> {
  const { id } = await world.agent("a1");
  const state = world.folder.agents.get(id)?.checkpoints.get(await idOf(name))?.state;
  if (state?.devices[0] === undefined) throw new Error("There is nothing to damage");
  state.devices[0] ^= 1;
}

describe("verify", () => {
  test("says good of every checkpoint that is kept, with progress before and a count at the end", async () => {
    const events = await verify();
    expect(verdicts(events)).toEqual(["ten good", "sleep good"]);
    expect(events.filter(({ type }) => type === "progress").length).toBeGreaterThan(0);
    expect(events.at(-1)).toEqual({ type: "end", good: 2, damaged: 0, gone: 0 });
  });

  test("C16 names the one that is damaged, and its part; the other is good", async () => {
    await damage("ten");
    const events = await verify();
    expect(verdicts(events)).toEqual(["ten damaged", "sleep good"]);
    expect(events).toContainEqual(
      expect.objectContaining({
        name: "ten",
        parts: expect.arrayContaining([
          expect.objectContaining({ part: "devices", verdict: "damaged", check: "digest" }),
        ]) as unknown[],
      }),
    );
    expect(events.at(-1)).toEqual({ type: "end", good: 1, damaged: 1, gone: 0 });
    expect(verdicts(await verify("ten"))).toEqual(["ten damaged"]);
  });

  test("C16 tells a layer that two checkpoints share of both", async () => {
    const { id, disk } = await world.agent("a1");
    world.files.write(layerPath(id, disk?.[0] ?? ("" as never)), Buffer.from("{ }"));
    expect(verdicts(await verify())).toEqual(["ten damaged", "sleep damaged"]);
  });

  test("of one that there is not is refused", async () => {
    await expect(begin("eleven")).rejects.toMatchObject({ code: "checkpoint_not_found" });
  });

  test("holds nobody up: the agent wakes, is checkpointed and sleeps while it reads", async () => {
    const events = (await begin())[Symbol.asyncIterator]();
    await world.run(events.next());
    expect(await count(world, "a1", 1)).toBe(16);
    await world.execute(checkpoint("a1", "sixteen"));
    await world.execute(verb("sleep", "a1"));
    const rest = await world.run(Array.fromAsync({ [Symbol.asyncIterator]: () => events }));
    // The sleep that it began with was forgotten for the newer one.
    expect(verdicts(rest)).toEqual(["ten good", "sleep gone"]);
    expect(rest.at(-1)).toEqual({ type: "end", good: 1, damaged: 0, gone: 1 });
    await world.time.flush();
    expect(await violationsOf(world)).toEqual([]);
  });

  test("of an agent that is removed while it reads finds nothing damaged", async () => {
    const events = (await begin())[Symbol.asyncIterator]();
    await world.run(events.next());
    await world.execute(verb("remove", "a1"));
    const rest = await world.run(Array.fromAsync({ [Symbol.asyncIterator]: () => events }));
    expect(rest.at(-1)).toMatchObject({ type: "end", damaged: 0 });
  });

  test("ends when its caller leaves, with the caller's reason", async () => {
    const leave = new AbortController();
    const events = (await begin(undefined, leave.signal))[Symbol.asyncIterator]();
    await world.run(events.next());
    leave.abort(new Error("left"));
    const rest = Array.fromAsync({ [Symbol.asyncIterator]: () => events });
    await expect(world.run(rest)).rejects.toThrow("left");
  });
});
