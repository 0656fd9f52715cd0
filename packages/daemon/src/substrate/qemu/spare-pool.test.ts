import { expect, test } from "vitest";
import type { Machine, MachineEvent } from "../../core/ports/substrate.ts";
import { SparePool } from "./spare-pool.ts";

/** Just enough of a machine to stand on a shelf. */
class Fake {
  killed = false;
  killError: Error | null = null;
  #listener: (event: MachineEvent) => void = () => undefined;
  onEvent(listener: (event: MachineEvent) => void): () => void {
    this.#listener = listener;
    return () => undefined;
  }
  kill(): Promise<void> {
    this.killed = true;
    return this.killError === null ? Promise.resolve() : Promise.reject(this.killError);
  }
  die(): void {
    this.#listener({ kind: "exited", detail: "test" });
  }
}

function pool(start: () => Promise<Fake>) {
  const failures: unknown[] = [];
  const made = new SparePool<string, Machine & Fake>({
    start: () => start() as Promise<Machine & Fake>,
    failed: (error) => failures.push(error),
  });
  return { pool: made, failures };
}

function starter() {
  const started: Fake[] = [];
  const start = (): Promise<Fake> => {
    const fake = new Fake();
    started.push(fake);
    return Promise.resolve(fake);
  };
  return { started, start };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

test("a spare is handed out once, and replaced at the next keep", async () => {
  const { started, start } = starter();
  const { pool: spares } = pool(start);
  spares.keep("a", "spec", 2);
  await settle();
  expect(spares.count("a")).toBe(2);
  const first = spares.take("a");
  const second = spares.take("a");
  expect(first).not.toBe(second);
  await settle();
  expect(started).toHaveLength(2);
  spares.keep("a", "spec", 2);
  await settle();
  expect(spares.count("a")).toBe(2);
  expect(started).toHaveLength(4);
  expect(spares.take("unknown")).toBeNull();
});

test("one that dies on the shelf is replaced and never handed out", async () => {
  const { started, start } = starter();
  const { pool: spares } = pool(start);
  spares.keep("a", "spec", 1);
  await settle();
  started[0]?.die();
  expect(spares.count("a")).toBe(0);
  await settle();
  expect(spares.take("a")).toBe(started[1]);
  expect(started[0]?.killed).toBe(true);
});

test("a start that fails is reported once and tried again only when asked", async () => {
  let tries = 0;
  const { pool: spares, failures } = pool(() => {
    tries++;
    return Promise.reject(new Error("no"));
  });
  spares.keep("a", "spec", 3);
  await settle();
  expect([tries, failures.length]).toEqual([1, 1]);
  spares.keep("a", "spec", 3);
  await settle();
  expect(tries).toBe(2);
});

test("asking for fewer ends the surplus", async () => {
  const { started, start } = starter();
  const { pool: spares } = pool(start);
  spares.keep("a", "spec", 3);
  await settle();
  spares.keep("a", "spec", 1);
  await settle();
  expect(started.filter(({ killed }) => killed)).toHaveLength(2);
  expect(spares.count("a")).toBe(1);
});

test("closing ends all, also one that is being started", async () => {
  const { started, start } = starter();
  const { pool: spares } = pool(async () => {
    await settle();
    return start();
  });
  spares.keep("a", "spec", 2);
  await settle();
  await spares.close();
  expect(started.every(({ killed }) => killed)).toBe(true);
  spares.keep("a", "spec", 1);
  await settle();
  expect(spares.take("a")).toBeNull();
});

test("a spare that cannot be ended is told of, and harms nobody", async () => {
  const { started, start } = starter();
  const { pool: spares, failures } = pool(start);
  spares.keep("a", "spec", 2);
  await settle();
  const error = new Error("It hangs in the kernel");
  for (const fake of started) fake.killError = error;
  started[0]?.die();
  spares.keep("a", "spec", 0);
  await settle();
  expect(failures.length).toBeGreaterThanOrEqual(2);
  expect(new Set(failures)).toEqual(new Set([error]));
});
