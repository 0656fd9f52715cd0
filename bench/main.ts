/**
 * `npm run bench -- NAME`: runs one benchmark. Standard output is data, everything else goes to
 * standard error. Exits with 1 where it failed, or where `--check` finds a bar that does not hold;
 * with 2 where the command line makes no sense.
 */
import type { Benchmark, Result } from "./benchmark.ts";
import { Cleanup } from "./cleanup.ts";
import { describeMachine } from "./machine.ts";
import { parseOptions, usage, type Options } from "./option.ts";
import { benchmarks } from "./registry.ts";
import { renderResult } from "./table.ts";

const startedMs = performance.now();

function progress(text: string): void {
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  process.stderr.write(`bench ${seconds.padStart(6)} s  ${text}\n`);
}

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2));
  if (options === null) return misused(usage);
  if (options.list) {
    for (const { name, about } of benchmarks) process.stdout.write(`${name.padEnd(12)}${about}\n`);
    return 0;
  }
  const benchmark = benchmarks.find(({ name }) => name === options.name);
  if (benchmark === undefined) return misused(`There is no benchmark "${options.name ?? ""}".`);
  const result = await measure(benchmark, options);
  process.stdout.write(
    options.json ? `${JSON.stringify(result, null, 2)}\n` : renderResult(result),
  );
  if (result.failures.length > 0) return 1;
  return options.check && result.bars.some(({ holds }) => !holds) ? 1 : 0;
}

async function measure(benchmark: Benchmark, options: Options): Promise<Result> {
  const cleanup = new Cleanup(progress);
  cleanup.listen();
  try {
    const machine = await describeMachine("tcg");
    const { runs, only } = options;
    const findings = await benchmark.run({ runs, only, cleanup, machine, progress });
    return { name: benchmark.name, machine, ...findings };
  } finally {
    await cleanup.run();
  }
}

function misused(text: string): number {
  process.stderr.write(`${text}\n`);
  return 2;
}

try {
  process.exitCode = await main();
} catch (error) {
  progress(`failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  process.exitCode = 1;
}
