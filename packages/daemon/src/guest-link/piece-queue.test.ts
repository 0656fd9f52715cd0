import fc from "fast-check";
import { expect, test } from "vitest";
import { reachableBytes, retainsLess } from "./fake/measure.ts";
import { PieceQueue } from "./piece-queue.ts";

test("pieces come out as they went in, whatever the order of pushes and shifts", () => {
  const steps = fc.array(fc.option(fc.uint8Array({ maxLength: 9_000 }), { nil: null }));
  fc.assert(
    fc.property(steps, (pushes) => {
      const queue = new PieceQueue();
      const model: number[][] = [];
      for (const piece of pushes) {
        if (piece !== null) {
          queue.push(piece);
          model.push([...piece]);
        } else {
          const got = queue.shift();
          expect(got === undefined ? undefined : [...got]).toEqual(model.shift());
        }
        expect(queue.pieces).toBe(model.length);
      }
    }),
  );
});

test("a quarter million pieces of one byte take megabytes, not a hundred", async () => {
  const queue = new PieceQueue();
  const before = reachableBytes();
  for (let i = 0; i < 262_144; i++) queue.push(Uint8Array.of(i & 255));
  await retainsLess(before, 16 * 1024 * 1024);
  expect(queue.pieces).toBe(262_144);
});
