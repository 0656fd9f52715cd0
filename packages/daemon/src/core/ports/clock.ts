/** Time and chance, kept behind a port so that tests own both. */
export interface Clock {
  /** Wall clock, milliseconds since the epoch. */
  nowMs(): number;
  /** Monotonic milliseconds with fractions, for durations only. */
  monotonicMs(): number;
  /** Resolves after `ms` of monotonic time, or rejects with the signal's reason. */
  wait(ms: number, signal?: AbortSignal): Promise<void>;
  /** `count` bytes from the host's cryptographic generator. */
  randomBytes(count: number): Uint8Array<ArrayBuffer>;
}
