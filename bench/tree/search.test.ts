import { expect, test } from "vitest";
import { best, drawTree } from "./search.ts";

test("a tree is the same for the same seed, has one root, and grows from what is there", () => {
  const nodes = drawTree(200, 7);
  expect(drawTree(200, 7)).toEqual(nodes);
  expect(drawTree(200, 8)).not.toEqual(nodes);
  expect(nodes.filter(({ parent }) => parent === null)).toHaveLength(1);
  nodes.forEach(({ parent }, i) => {
    if (parent !== null) expect(nodes.indexOf(parent)).toBeLessThan(i);
  });
});

test("the best are those of the highest score", () => {
  const nodes = drawTree(50, 7);
  const kept = best(nodes, 5);
  const worst = Math.min(...kept.map(({ score }) => score));
  expect(kept).toHaveLength(5);
  expect(nodes.filter(({ score }) => score > worst).length).toBeLessThan(5);
});
