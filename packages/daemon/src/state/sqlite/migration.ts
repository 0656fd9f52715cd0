/**
 * Numbered migrations: `migrations/NNN-*.sql`, each applied once, in one transaction with the number
 * it leaves in `PRAGMA user_version`. A released file never changes; what is new gets the next number.
 */
import { readdirSync, readFileSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";

export interface Migration {
  readonly version: number;
  readonly file: string;
  readonly sql: string;
}

const folder = new URL("./migrations/", import.meta.url);

/** Every known migration, from 1 on without a gap. */
export function readMigrations(): readonly Migration[] {
  const files = readdirSync(folder)
    .filter((file) => file.endsWith(".sql"))
    .sort();
  return files.map((file, index) => {
    const version = index + 1;
    if (!file.startsWith(`${String(version).padStart(3, "0")}-`)) {
      throw new PerdureError("internal", `Migration ${version} is missing: found "${file}"`);
    }
    return { version, file, sql: readFileSync(new URL(file, folder), "utf8") };
  });
}

/**
 * Brings `database` to the newest known version.
 *
 * @throws `data_too_new` where a newer daemon has been here
 */
export function migrate(database: DatabaseSync, migrations: readonly Migration[]): void {
  const known = migrations.length;
  const found = userVersion(database);
  if (found > known) {
    throw new PerdureError(
      "data_too_new",
      `Cannot open the state store: its version is ${found}, this daemon knows up to ${known}`,
      { hint: "Start the newer daemon that wrote it.", details: { found, known } },
    );
  }
  for (const { version, sql } of migrations.slice(found)) {
    database.exec("BEGIN IMMEDIATE");
    try {
      database.exec(sql);
      database.exec(`PRAGMA user_version = ${version}`);
      database.exec("COMMIT");
    } catch (error) {
      if (database.isTransaction) database.exec("ROLLBACK");
      throw error;
    }
  }
}

function userVersion(database: DatabaseSync): number {
  return Number(database.prepare("PRAGMA user_version").get()?.["user_version"] ?? 0);
}
