/** The benchmarks there are. */
import type { Benchmark } from "./benchmark.ts";
import { fleet } from "./fleet/fleet.ts";
import { tree } from "./tree/tree.ts";
import { wake } from "./wake/wake.ts";
import { wire } from "./wire/wire.ts";

export const benchmarks: readonly Benchmark[] = [wake, fleet, tree, wire];
