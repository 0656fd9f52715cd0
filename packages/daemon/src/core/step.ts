/**
 * The durable steps of the verbs, by name. Each is passed right after what it names is durable, so
 * that a test can end the daemon, the VMM or both exactly there and check the invariants after a
 * restart. In production a step does nothing.
 */
export const steps = [
  "create.inserted",
  "create.folder-made",
  "create.claimed",
  "create.restored",
  "create.let-out",
  "create.thawed",
  "sleep.begun",
  "sleep.frozen",
  "sleep.paused",
  "sleep.base-written",
  "sleep.pack-written",
  "sleep.page-map-written",
  "sleep.devices-written",
  "sleep.layers-synced",
  "sleep.manifest-written",
  "sleep.published",
  "sleep.machine-gone",
  "sleep.collected",
  "checkpoint.layer-recorded",
  "checkpoint.frozen",
  "checkpoint.layer-switched",
  "checkpoint.thawed",
  "checkpoint.pack-written",
  "checkpoint.page-map-written",
  "checkpoint.devices-written",
  "checkpoint.layers-synced",
  "checkpoint.manifest-written",
  "checkpoint.published",
  "checkpoint.collected",
  "wake.claimed",
  "wake.restored",
  "wake.let-out",
  "wake.thawed",
  "stop.begun",
  "stop.powered-off",
  "stop.layers-synced",
  "stop.manifest-written",
  "stop.published",
  "stop.machine-gone",
  "cold-start.claimed",
  "cold-start.restored",
  "cold-start.let-out",
  "cold-start.thawed",
  "recover.side-branch-kept",
  "recover.claimed",
  "recover.restored",
  "recover.let-out",
  "recover.thawed",
  "restore.present-kept",
  "restore.claimed",
  "restore.restored",
  "restore.let-out",
  "restore.thawed",
  "fork.inserted",
  "fork.folder-made",
  "fork.claimed",
  "fork.restored",
  "fork.let-out",
  "fork.thawed",
  "import.inserted",
  "import.folder-made",
  "import.received",
  "import.checkpoint-written",
  "import.published",
  "import.collected",
  "import.claimed",
  "import.restored",
  "import.let-out",
  "import.thawed",
  "flatten.machine-started",
  "flatten.layers-merged",
  "flatten.page-map-written",
  "flatten.devices-written",
  "flatten.layers-synced",
  "flatten.manifest-written",
  "flatten.published",
  "flatten.collected",
  "grow.recorded",
  "grow.disk-grown",
  "grow.file-system-grown",
  "grow.noted",
  "remove.marked",
  "remove.machine-gone",
  "remove.files-gone",
] as const;

export type Step = (typeof steps)[number];

export interface StepFacts {
  /** Host process of the agent's machine, where there is one. */
  readonly machinePid: number | null;
}

/** Called at every step. A rejection is taken as a failure of the verb at that point. */
export type StepHook = (step: Step, facts: StepFacts) => Promise<void>;

export function isStep(name: string): name is Step {
  return (steps as readonly string[]).includes(name);
}
