/**
 * Deadlines and bounds of the engine, by name. Software emulation is several times slower than
 * hardware acceleration, and a deadline here ends in a torn-down VM or a marked checkpoint: generous.
 */
export const engineLimits = {
  /** Flush of the guest's file systems before the freeze. Missed: the disk is crash-consistent. */
  flushMs: 20_000,
  /** The second, short flush after the freeze. */
  flushFrozenMs: 5_000,
  /** Dropping the guest's page cache before a sleep. */
  dropCachesMs: 10_000,
  /** Page cache that a sleep stores rather than drops. */
  cacheKeptBytes: 24 * 1024 * 1024,
  /** Freeze of the workload (I4). */
  freezeMs: 2_000,
  /** From the first run of a restored VM until its guest agent answers in the new epoch. */
  syncMs: 20_000,
  /** Each of the gate's calls: a busy guest that has answered once may take as long for the next. */
  gateMs: 20_000,
  /** From the first run until the first answer of a VM that boots. */
  bootMs: 180_000,
  /** As `bootMs`, of the first try: one boot in hundreds stands still under software emulation. */
  bootFirstMs: 60_000,
  /** A program that a template runs once. */
  warmUpMs: 60_000,
  clockMs: 5_000,
  /** A raise that takes longer does not keep the next one waiting. */
  raiseTurnMs: 5_000,
  /** |skew| + bound wanted after setting the clock. */
  skewWantedMs: 50,
  /** Above this the agent is not let out. */
  skewRefusedMs: 500,
  /** How far a guest's monotonic clock is moved at most; longer away counts as this. */
  clockAdvanceMs: 400 * 24 * 3_600_000,
  /** How far off the wall clock may be after such a move: the time away is known to this. */
  clockAdvanceSlackMs: 2_000,
  /** Two hosts' time stamp counters run alike within this. What a kernel tells of its own is good to half of it. */
  tscRateTolerance: 0.001,
  hooksMs: 10_000,
  /** SIGTERM to the workload until SIGKILL, at stop. */
  shutdownMs: 10_000,
  /** Power-off after the guest agent said that everything is on disk. */
  powerOffMs: 60_000,
  entropyBytes: 64,
  /** Reboots by the guest within `resetWindowMs` before the agent is failed. */
  resetsMax: 3,
  resetWindowMs: 300_000,
  /** How often a VM is tried again that stands still: for want of room on the host's disk, or a cut that failed. */
  pausedRetryMs: 2_000,
  /** Tries to make a guest answer that goes on after such a pause; then the next call does it. */
  pausedAnswersMax: 30,
  /** Share of one CPU above which programs inside keep an agent awake, between two looks. */
  idleCpuShare: 0.05,
  /** Until a program inside takes a connection to its port. */
  connectMs: 10_000,
  /** Longest time between two looks at an awake agent. */
  lookEveryMsMax: 15_000,
  /** A wait inside that is due so soon is waited for awake. */
  waitNearMs: 5_000,
  /** For a wait inside an agent sleeps this long at once: libuv's waits overflow where 24.8 days pass in one. */
  waitFarMs: 24 * 24 * 3_600_000,
  /** Agents that the alarm acts on at once. */
  alarmActsMax: 8,
  /** Longest time until the alarm looks at the wall clock again. */
  alarmLookEveryMsMax: 30_000,
  /** After what the alarm did failed; doubled with each further one, up to the longest. */
  alarmRetryMs: 5_000,
  alarmRetryMsMax: 300_000,
  /** From the start of a daemon until it answers, whatever VMs that it finds do not. */
  restartMs: 10_000,
  /** From what a dying VM breaks first (its link, its monitor, its memory) until its end is known. */
  endKnownMs: 250,
  /** How long an agent rests before a long chain of its disk is shortened; doubled with each try that failed. */
  flattenAfterMs: 600_000,
  flattenAfterMsMax: 24 * 3_600_000,
  /** Time for a file system inside to grow, and tries until the guest has heard of its larger disk; waits double. */
  growMs: 60_000,
  /** Time for all of its tries, by the host's clock. */
  growAnswerMs: 90_000,
  growTriesMax: 8,
  growRetryMs: 25,
  /** Checkpoints in one export. */
  exportCheckpointsMax: 256,
  /** Room asked for beyond the captured pages: device state, page map, manifest, layer. */
  captureSlackBytes: 16 * 1024 * 1024,
} as const;
