/**
 * The parts of a benchmark: each brings its own agents and leaves none. What fails in one leaves nothing
 * behind and does not keep the others from being measured.
 */
import { found, joined, type Context, type Findings } from "./benchmark.ts";
import type { Cleanup } from "./cleanup.ts";

export type Parts<Place> = Readonly<Record<string, (place: Place) => Promise<Findings>>>;

export interface PartsRun<Place> {
  /** Where a part works; what it adds to `cleanup` is undone when it ends. */
  place(cleanup: Cleanup): Place;
  /** After a part that failed. */
  failed?(): Promise<void>;
}

/** The parts that were asked for. @throws for one that there is not */
export function chosen<Place>(parts: Parts<Place>, only: readonly string[] | null): Parts<Place> {
  const names = only ?? Object.keys(parts);
  return Object.fromEntries(
    names.map((name) => {
      const part = parts[name];
      if (part === undefined) throw new Error(`There is no part "${name}" in this benchmark`);
      return [name, part];
    }),
  );
}

export async function runParts<Place>(
  { cleanup, progress }: Pick<Context, "cleanup" | "progress">,
  parts: Parts<Place>,
  run: PartsRun<Place>,
): Promise<Findings> {
  const findings: Findings[] = [];
  for (const [name, part] of Object.entries(parts)) {
    progress(`part "${name}"`);
    try {
      findings.push(await cleanup.scope(name, (scope) => part(run.place(scope))));
    } catch (error) {
      const failure = `part "${name}": ${error instanceof Error ? error.message : String(error)}`;
      progress(failure);
      await run.failed?.();
      findings.push(found({ failures: [failure] }));
    }
  }
  return joined(findings);
}
