/** Order statistics of small samples: what a benchmark says about repeated measurements. */

export interface Summary {
  readonly count: number;
  readonly median: number;
  readonly p95: number;
  readonly min: number;
  readonly max: number;
}

/**
 * The `q`-quantile (0 to 1) with linear interpolation between order statistics.
 *
 * @throws RangeError for no samples, for a sample that is not a number, and for `q` out of range
 */
export function quantile(samples: readonly number[], q: number): number {
  if (samples.length === 0) throw new RangeError("No samples were taken");
  if (samples.some(Number.isNaN)) throw new RangeError("A sample is not a number");
  if (!(q >= 0 && q <= 1)) throw new RangeError(`No such quantile: ${q}`);
  const sorted = samples.toSorted((a, b) => a - b);
  const position = (sorted.length - 1) * q;
  const below = at(sorted, Math.floor(position));
  const above = at(sorted, Math.ceil(position));
  return below + (above - below) * (position - Math.floor(position));
}

export function median(samples: readonly number[]): number {
  return quantile(samples, 0.5);
}

export function summarise(samples: readonly number[]): Summary {
  return {
    count: samples.length,
    median: median(samples),
    p95: quantile(samples, 0.95),
    min: quantile(samples, 0),
    max: quantile(samples, 1),
  };
}

/** Median of `ours` over median of `theirs`: both were taken in turns in one run. */
export function ratioOfMedians(ours: readonly number[], theirs: readonly number[]): number {
  const below = median(theirs);
  if (!(below > 0)) throw new RangeError("A ratio needs something to compare with");
  return median(ours) / below;
}

function at(sorted: readonly number[], index: number): number {
  const value = sorted[index];
  if (value === undefined) throw new RangeError("No samples were taken");
  return value;
}
