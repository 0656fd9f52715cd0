/** What is SQLite's own: the lock, versions, the schema, the plans, and what a kill leaves behind. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";
import { agentSql } from "./agent-rows.ts";
import { migrate, readMigrations } from "./migration.ts";
import { openSqliteStateStore } from "./sqlite-state-store.ts";

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-sqlite-"));
  path = join(folder, "state.db");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

it("refuses a second opener while the first holds the file, and not after", async () => {
  const first = await openSqliteStateStore({ path });
  await expect(openSqliteStateStore({ path })).rejects.toMatchObject({ code: "daemon_running" });
  const agent = sampleAgent("a1");
  await first.commit([{ kind: "insert-agent", agent }]);
  await first.close();
  const second = await openSqliteStateStore({ path });
  expect(await second.agent(agent.id)).toEqual(agent);
  await second.close();
});

it("makes its folder and a database that only the owner may read", async () => {
  path = join(folder, "deeper", "state.db");
  const store = await openSqliteStateStore({ path });
  await store.commit([{ kind: "insert-agent", agent: sampleAgent("a1") }]);
  for (const file of [path, `${path}-wal`]) expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect((await stat(join(folder, "deeper"))).mode & 0o777).toBe(0o700);
  await store.close();
});

it("refuses data of a newer daemon and leaves it as it is", async () => {
  const database = new DatabaseSync(path);
  database.exec("PRAGMA user_version = 999");
  database.close();
  await expect(openSqliteStateStore({ path })).rejects.toMatchObject({
    code: "data_too_new",
    details: { found: 999 },
  });
});

it("says so where the file is no database, or cannot be opened", async () => {
  await writeFile(path, "not a database ".repeat(1000));
  await expect(openSqliteStateStore({ path })).rejects.toMatchObject({ code: "store_failed" });
  await expect(openSqliteStateStore({ path: folder })).rejects.toMatchObject({
    code: "store_failed",
  });
});

it("has exactly the schema of schema.golden.sql after all migrations", async () => {
  const database = new DatabaseSync(":memory:");
  migrate(database, readMigrations());
  const rows = database.prepare(
    "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
  );
  const dump = rows.all().map(({ sql }) => `${String(sql)};\n`);
  database.close();
  await expect(dump.join("\n")).toMatchFileSnapshot("schema.golden.sql");
});

/** Not of labels, which are looked at in the rows that were found. */
function isOfTable(detail: string): boolean {
  return !/SUBQUERY|VIRTUAL TABLE/.test(detail);
}

it("takes back the whole migration that fails, with its number", () => {
  const database = new DatabaseSync(":memory:");
  const known = readMigrations().length;
  const broken = {
    version: known + 1,
    file: "next-x.sql",
    sql: "CREATE TABLE t (a); SELECT nonsense;",
  };
  expect(() => migrate(database, [...readMigrations(), broken])).toThrow(/nonsense/);
  expect(database.prepare("PRAGMA user_version").get()).toEqual({ user_version: known });
  expect(database.prepare("SELECT * FROM sqlite_schema WHERE name = 't'").get()).toBeUndefined();
  database.close();
});

it.each(["list", "listInState", "byName", "byId"] as const)(
  "answers agent query %s by a search on an index",
  (query) => {
    const database = new DatabaseSync(":memory:");
    migrate(database, readMigrations());
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${agentSql[query]}`).all();
    const details = plan.map(({ detail }) => String(detail)).filter(isOfTable);
    database.close();
    expect(details).toHaveLength(1);
    const range = query.startsWith("list") ? /USING INDEX .*name>\? AND name<\?/ : /USING INDEX/;
    expect(details[0]).toMatch(range);
  },
);

it("keeps every acknowledged commit when its process is killed in the middle", async () => {
  const acknowledged = new Set<string>();
  for (let round = 0; round < 5; round++) {
    const child = spawn(process.execPath, [join(import.meta.dirname, "commit-forever.ts"), path], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    child.stdout.setEncoding("utf8");
    let text = "";
    child.stdout.on("data", (chunk: string) => {
      text += chunk;
      if (text.length > 1500 + round * 700) child.kill("SIGKILL");
    });
    await once(child, "close");
    for (const id of text.split("\n").slice(0, -1)) acknowledged.add(id);
    const store = await openSqliteStateStore({ path });
    const stored = new Map((await store.allAgents()).map((agent) => [agent.id as string, agent]));
    await store.close();
    for (const id of acknowledged) expect(stored.get(id)?.revision, id).toBe(1);
  }
  expect(acknowledged.size).toBeGreaterThan(200);
  const database = new DatabaseSync(path);
  expect(database.prepare("PRAGMA integrity_check").get()).toEqual({ integrity_check: "ok" });
  database.close();
});
