import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";
import type { Agent } from "../../core/agent.ts";
import type { StateChange } from "../../core/ports/state-store.ts";
import { openDatabase } from "./database.ts";
import { commitGroup, prepareRows } from "./group-commit.ts";
import type { Rows } from "./group-commit.ts";

let folder: string;
let database: DatabaseSync;
let rows: Rows;
/** Statements outside of rows, in order. */
let executed: string[];
/** Called before such a statement; may throw. */
let before: (sql: string) => void;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "perdure-group-"));
  database = openDatabase(join(folder, "state.db"));
  rows = prepareRows(database);
  executed = [];
  before = () => undefined;
  const exec = database.exec.bind(database);
  database.exec = (sql) => {
    before(sql);
    executed.push(sql);
    exec(sql);
  };
});
afterEach(() => {
  database.close();
  rmSync(folder, { recursive: true });
});

const insert = (agent: Agent): StateChange[] => [{ kind: "insert-agent", agent }];
const isStored = (agent: Agent): boolean => rows.agents.byId(agent.id) !== null;

it("commits once for all that came together, the refused ones left out", () => {
  const agents = ["a", "b", "a", "c"].map((name) => sampleAgent(name));
  const outcomes = commitGroup(database, rows, agents.map(insert));
  expect(outcomes.map((error) => error?.code)).toEqual([
    undefined,
    undefined,
    "agent_exists",
    undefined,
  ]);
  expect(agents.map(isStored)).toEqual([true, true, false, true]);
  expect(executed.filter((sql) => sql === "COMMIT")).toHaveLength(1);
});

it.each(["BEGIN IMMEDIATE", "COMMIT"])("fails all, and keeps none, where %s fails", (failing) => {
  before = (sql) => {
    if (sql === failing) throw new Error("disk I/O error");
  };
  const agents = ["a", "b"].map((name) => sampleAgent(name));
  const outcomes = commitGroup(database, rows, agents.map(insert));
  expect(outcomes.map((error) => error?.code)).toEqual(["store_failed", "store_failed"]);
  expect(agents.map(isStored)).toEqual([false, false]);
  before = () => undefined;
  expect(commitGroup(database, rows, agents.map(insert))).toEqual([undefined, undefined]);
});

it("never says stored of what is not, nor the other way round, where the disk is full", () => {
  const pages = Number(database.prepare("PRAGMA page_count").get()?.["page_count"]);
  database.exec(`PRAGMA max_page_count = ${pages + 8}`);
  const agents = Array.from({ length: 12 }, (_, i) =>
    sampleAgent(`a${i}`, { paused: "x".repeat(i % 3 === 2 ? 40_000 : 100) }),
  );
  const outcomes = commitGroup(database, rows, agents.map(insert));
  expect(agents.map(isStored)).toEqual(outcomes.map((error) => error === undefined));
  expect(outcomes.some((error) => error?.code === "disk_full")).toBe(true);
  database.exec(`PRAGMA max_page_count = ${pages + 1000}`);
  const later = sampleAgent("later");
  expect(commitGroup(database, rows, [insert(later)])).toEqual([undefined]);
});
