import { expect, test } from "vitest";
import { Cleanup } from "./cleanup.ts";

test("everything is undone, newest first, also after a failure", async () => {
  const said: string[] = [];
  const cleanup = new Cleanup((text) => said.push(text));
  const done: string[] = [];
  cleanup.add("a", () => {
    done.push("a");
  });
  cleanup.add("b", () => Promise.reject(new Error("no")));
  cleanup.add("c", async () => {
    await Promise.resolve();
    done.push("c");
  });
  await cleanup.run();
  expect(done).toEqual(["c", "a"]);
  expect(said).toEqual(['Cannot undo "b": no']);
});

test("what was undone early is not undone again", async () => {
  const cleanup = new Cleanup(() => undefined);
  let times = 0;
  const undo = cleanup.add("x", () => {
    times++;
  });
  await undo();
  await undo();
  await cleanup.run();
  expect(times).toBe(1);
});

test("what is added while undoing is undone too", async () => {
  const cleanup = new Cleanup(() => undefined);
  const done: string[] = [];
  cleanup.add("outer", () => {
    cleanup.add("inner", () => {
      done.push("inner");
    });
  });
  await cleanup.run();
  expect(done).toEqual(["inner"]);
});

test("a scope is undone when its work ends, also by an error", async () => {
  const cleanup = new Cleanup(() => undefined);
  const done: string[] = [];
  const work = cleanup.scope("scope", (scope) => {
    scope.add("x", () => {
      done.push("x");
    });
    return Promise.reject(new Error("no"));
  });
  await expect(work).rejects.toThrow("no");
  expect(done).toEqual(["x"]);
  await cleanup.run();
  expect(done).toEqual(["x"]);
});
