-- When a sleeping agent is woken by itself; null for all others.
ALTER TABLE agent ADD COLUMN wake_due_ms INTEGER;

CREATE INDEX agent_wake_due ON agent (wake_due_ms) WHERE wake_due_ms IS NOT NULL;

-- Agents from before are neither put to sleep for being idle nor checkpointed by themselves.
UPDATE agent
   SET document = json_set(
         document,
         '$.idleAfterMs', NULL, '$.checkpointEveryMs', NULL, '$.holds', json('[]'),
         '$.wakeAtMs', NULL, '$.waitDueMs', NULL, '$.asleepBecause', NULL, '$.quarantine', NULL);
