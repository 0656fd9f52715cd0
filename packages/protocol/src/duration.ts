/** Times as people write them. */

const factors: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** Milliseconds of `250ms`, `30s`, `5m`, `2h`, `1d`, or of a number of seconds; null where it is none of these. */
export function durationMs(text: string): number | null {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text.trim());
  const ms = Math.round(Number(match?.[1]) * (factors[match?.[2] ?? "s"] ?? NaN));
  return ms >= 1 ? ms : null;
}
