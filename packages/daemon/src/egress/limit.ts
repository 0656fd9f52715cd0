/** Bounds of the way out of one agent. */
export const wayOutLimits = {
  /** Connections at once; one beyond waits for another to end, so long. */
  openMax: 128,
  waitMs: 10_000,
  /** Those that wait for that; more wait inside. */
  waitingMax: 64,
  /** New ones, as an average and as a burst. */
  newPerSecond: 100,
  newAtOnce: 400,
  /** Until a server has taken a connection. */
  connectMs: 30_000,
  /** What is looked at must speak first, within this. */
  firstBytesMs: 10_000,
  keepAliveMs: 60_000,
} as const;
