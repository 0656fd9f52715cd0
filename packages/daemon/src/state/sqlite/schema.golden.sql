CREATE TABLE agent (
  id       TEXT    NOT NULL PRIMARY KEY,
  tenant   TEXT    NOT NULL,
  name     TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  -- +1 with every change: the fence between two commands.
  revision INTEGER NOT NULL CHECK (revision >= 0),
  document TEXT    NOT NULL CHECK (json_valid(document))
, due_ms INTEGER) STRICT;

CREATE INDEX agent_due ON agent (due_ms) WHERE due_ms IS NOT NULL;

CREATE UNIQUE INDEX agent_living_name ON agent (tenant, name) WHERE state <> 'removed';

CREATE INDEX agent_state_name ON agent (tenant, state, name);

CREATE TABLE api_key (
  id           TEXT    NOT NULL PRIMARY KEY,
  tenant       TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  -- Apart from the document: written with each use, and by nothing else.
  last_used_ms INTEGER,
  document     TEXT    NOT NULL CHECK (json_valid(document))
) STRICT;

CREATE UNIQUE INDEX api_key_name ON api_key (tenant, name);

CREATE TABLE checkpoint (
  -- Order of insertion; the clock of a host may step back.
  position INTEGER NOT NULL PRIMARY KEY,
  id       TEXT    NOT NULL UNIQUE,
  agent    TEXT    NOT NULL REFERENCES agent (id) ON DELETE CASCADE,
  document TEXT    NOT NULL CHECK (json_valid(document))
) STRICT;

CREATE INDEX checkpoint_agent ON checkpoint (agent, position);

CREATE TABLE connection (
  -- Order of insertion; the clock of a host may step back. Never used twice, though the oldest are forgotten.
  position   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  id         TEXT    NOT NULL UNIQUE,
  agent      TEXT    NOT NULL,
  unmediated INTEGER NOT NULL CHECK (unmediated IN (0, 1)),
  -- Null: it is open.
  ended_ms   INTEGER,
  document   TEXT    NOT NULL CHECK (json_valid(document))
) STRICT;

CREATE INDEX connection_agent ON connection (agent, position);

CREATE INDEX connection_open ON connection (ended_ms) WHERE ended_ms IS NULL;

CREATE INDEX connection_unmediated ON connection (agent, unmediated, position);

CREATE TABLE event (
  -- Ascending, and never used twice, though events are forgotten.
  id         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  tenant     TEXT    NOT NULL,
  agent      TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  generation INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL,
  kind       TEXT    NOT NULL,
  data       TEXT    NOT NULL CHECK (json_valid(data))
) STRICT;

CREATE INDEX event_tenant ON event (tenant, id);

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

CREATE TABLE sqlite_sequence(name,seq);
