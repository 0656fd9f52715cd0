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

/** A limit that the product promises to stay under. */
export interface Bar {
  readonly name: string;
  readonly value: number;
  readonly limit: number;
  readonly holds: boolean;
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

/** A bar holds when `value` is not above `limit`; a value that is not a number never holds. */
export function bar(name: string, value: number, limit: number): Bar {
  return { name, value, limit, holds: value <= limit };
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
