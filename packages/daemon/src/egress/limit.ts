/** Bounds of the way out of one agent. */
export const wayOutLimits = {
  /** Connections at once. */
  openMax: 128,
  /** Those beyond that are refused, so many at once. */
  refusedAtOnce: 64,
  /** New ones, as an average and as a burst. */
  newPerSecond: 50,
  newAtOnce: 200,
  /** Until a server has taken a connection. */
  connectMs: 30_000,
  /** What is looked at must speak first, within this. */
  firstBytesMs: 10_000,
  keepAliveMs: 60_000,
} as const;
