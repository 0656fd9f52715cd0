-- API keys. `document` is the whole row as JSON; the columns beside it are those that are searched.

CREATE TABLE api_key (
  id           TEXT    NOT NULL PRIMARY KEY,
  tenant       TEXT    NOT NULL,
  name         TEXT    NOT NULL,
  -- Apart from the document: written with each use, and by nothing else.
  last_used_ms INTEGER,
  document     TEXT    NOT NULL CHECK (json_valid(document))
) STRICT;

CREATE UNIQUE INDEX api_key_name ON api_key (tenant, name);
