/**
 * Opens the database file and takes the lock on it.
 *
 * `locking_mode=EXCLUSIVE` makes the first access take a lock that the kernel drops with the process,
 * however it dies. That lock is what keeps a second daemon off a data directory. POSIX locks vanish
 * when the owning process closes *any* descriptor of the file: nothing else in the daemon opens it.
 */
import { closeSync, mkdirSync, openSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { PerdureError } from "@perdure/protocol";
import { migrate, readMigrations } from "./migration.ts";

/** @throws `daemon_running`, `data_too_new`, `store_failed` */
export function openDatabase(path: string): DatabaseSync {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  createPrivately(path);
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: true });
    database.exec("PRAGMA locking_mode = EXCLUSIVE");
    database.exec("PRAGMA journal_mode = WAL");
    database.exec("PRAGMA synchronous = FULL");
    // A large group of commits would else spill into a file, on a disk that may be full.
    database.exec("PRAGMA temp_store = MEMORY");
    migrate(database, readMigrations());
    return database;
  } catch (error) {
    database?.close();
    throw openError(path, error);
  }
}

/** SQLite gives its other files the mode of this one. Fails where the file is there: that is fine. */
function createPrivately(path: string): void {
  try {
    closeSync(openSync(path, "wx", 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw openError(path, error);
  }
}

function openError(path: string, error: unknown): PerdureError {
  if (error instanceof PerdureError) return error;
  if (sqliteCode(error) === SQLITE_BUSY) {
    return new PerdureError(
      "daemon_running",
      `Cannot open "${path}": another daemon holds this data directory`,
      { hint: "Use that daemon, end it first, or give this one another --home.", cause: error },
    );
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new PerdureError("store_failed", `Cannot open "${path}": ${reason}`, { cause: error });
}

const SQLITE_BUSY = 5;
const SQLITE_FULL = 13;

/** The primary result code that SQLite gave, or undefined where the error is not SQLite's. */
function sqliteCode(error: unknown): number | undefined {
  const code = (error as { errcode?: unknown }).errcode;
  return typeof code === "number" ? code & 0xff : undefined;
}

/** What the caller of a transaction sees. */
export function transactionError(error: unknown): PerdureError {
  if (error instanceof PerdureError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  if (sqliteCode(error) === SQLITE_FULL) {
    return new PerdureError("disk_full", `Cannot store the change: ${reason}`, {
      hint: "Free some space on the host's disk, then try again.",
      cause: error,
    });
  }
  return new PerdureError("store_failed", `Cannot store the change: ${reason}`, { cause: error });
}
