/** The benchmarks there are. */
import type { Benchmark } from "./benchmark.ts";
import { wake } from "./wake/wake.ts";

export const benchmarks: readonly Benchmark[] = [wake];
