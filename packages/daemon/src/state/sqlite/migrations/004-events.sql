-- The event log: what became of agents, stored with the change itself. Only the oldest are ever deleted.

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
