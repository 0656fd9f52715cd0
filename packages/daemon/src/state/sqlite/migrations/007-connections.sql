-- Connections of agents to elsewhere. `document` is the whole row as JSON; the columns beside it are those that are
-- searched.

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
CREATE INDEX connection_unmediated ON connection (agent, unmediated, position);
CREATE INDEX connection_open ON connection (ended_ms) WHERE ended_ms IS NULL;
