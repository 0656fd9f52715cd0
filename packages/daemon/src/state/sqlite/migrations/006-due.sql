-- When the alarm is to act on an agent: wake it, or end it where its owner has set when.
DROP INDEX agent_wake_due;

ALTER TABLE agent RENAME COLUMN wake_due_ms TO due_ms;

CREATE INDEX agent_due ON agent (due_ms) WHERE due_ms IS NOT NULL;
