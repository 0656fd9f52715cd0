/**
 * What a benchmark is: it measures, and its bars say whether the figures are good enough.
 *
 * Ratios compare what ran in the same run, in turns; absolute figures depend on the machine, which is
 * why every result says what it ran on.
 */
import type { Cleanup } from "./cleanup.ts";
import type { Machine } from "./machine.ts";
import { summarise, type Summary } from "./statistic.ts";

export type Unit = "ms" | "bytes" | "MiB" | "count";

/** Repeated measurements of one thing. */
export interface Metric extends Summary {
  readonly unit: Unit;
}

/** How a value has to stand to its limit. */
export type Relation = "≤" | "≥" | "=";

/** A limit that the product promises to keep. */
export interface Bar {
  readonly name: string;
  /** What the value is, where the name does not tell. */
  readonly what?: string;
  /** Null where it could not be measured; `missing` says why. */
  readonly value: number | null;
  readonly relation: Relation;
  readonly limit: number;
  readonly holds: boolean;
  readonly missing?: string;
}

/** What a benchmark found. */
export interface Findings {
  readonly metrics: Readonly<Record<string, Metric>>;
  readonly ratios: Readonly<Record<string, number>>;
  readonly bars: readonly Bar[];
  /** Parts that could not be measured, with why: then their bars are missing, and nothing holds. */
  readonly failures: readonly string[];
}

export interface Result extends Findings {
  readonly name: string;
  readonly machine: Machine;
}

export interface Context {
  /** Samples per figure. */
  readonly runs: number;
  /** Parts to run; null: all. */
  readonly only: readonly string[] | null;
  readonly cleanup: Cleanup;
  readonly machine: Machine;
  /** Says what is going on, on standard error. */
  progress(text: string): void;
}

export interface Benchmark {
  readonly name: string;
  /** One line for `--list`. */
  readonly about: string;
  run(context: Context): Promise<Findings>;
}

export function metric(unit: Unit, samples: readonly number[]): Metric {
  return { unit, ...summarise(samples) };
}

const compare: Readonly<Record<Relation, (value: number, limit: number) => boolean>> = {
  "≤": (value, limit) => value <= limit,
  "≥": (value, limit) => value >= limit,
  "=": (value, limit) => value === limit,
};

/** A bar as it is promised, before anything was measured. */
export interface Limit {
  readonly name: string;
  readonly what?: string;
  readonly relation: Relation;
  readonly limit: number;
}

/** What was measured for a bar. A value that is not a number never holds. */
export function judged(promise: Limit, value: number): Bar {
  return { ...promise, value, holds: compare[promise.relation](value, promise.limit) };
}

/** A bar that could not be measured on this build or host does not hold. */
export function unmeasured(promise: Limit, missing: string): Bar {
  return { ...promise, value: null, holds: false, missing };
}

/** A bar that holds when `value` is not above `limit`. */
export function bar(name: string, value: number, limit: number): Bar {
  return judged({ name, relation: "≤", limit }, value);
}

/** What a part found that was measured. */
export function found(findings: Partial<Findings>): Findings {
  return { metrics: {}, ratios: {}, bars: [], failures: [], ...findings };
}

/** Findings of several parts as one. */
export function joined(parts: readonly Findings[]): Findings {
  return {
    metrics: Object.assign({}, ...parts.map((part) => part.metrics)) as Findings["metrics"],
    ratios: Object.assign({}, ...parts.map((part) => part.ratios)) as Findings["ratios"],
    bars: parts.flatMap((part) => part.bars),
    failures: parts.flatMap((part) => part.failures),
  };
}
