-- Requests that came with an idempotency key, and what was answered.

CREATE TABLE request (
  -- Order of insertion; the clock of a host may step back.
  position  INTEGER NOT NULL PRIMARY KEY,
  principal TEXT    NOT NULL,
  key       TEXT    NOT NULL,
  -- SHA-256 of what was asked.
  digest    TEXT    NOT NULL,
  at_ms     INTEGER NOT NULL,
  -- Null: begun, and how it ended is not known.
  status    INTEGER,
  body      TEXT
) STRICT;

CREATE UNIQUE INDEX request_key ON request (principal, key);
