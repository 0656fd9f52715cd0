/** The command line of `npm run bench`. */

export interface Options {
  readonly list: boolean;
  readonly name: string | null;
  readonly json: boolean;
  readonly check: boolean;
  readonly runs: number;
  readonly only: readonly string[] | null;
}

/** Medians are taken of at least this many samples unless `--runs` says otherwise. */
export const RUNS_DEFAULT = 15;
const RUNS_MAX = 1000;

export const usage = `Usage: npm run bench -- NAME [--json] [--check] [--runs N] [--only PART,…]
       npm run bench -- --list

  --json    one JSON object on standard output instead of a table
  --check   exit with 1 where a bar does not hold
  --runs N  samples per figure (${RUNS_DEFAULT}); fewer than ${RUNS_DEFAULT} are for trying things out
  --only P  only these parts of the benchmark
  --list    the benchmarks there are`;

/** What `args` ask for, or null where they make no sense. */
export function parseOptions(args: readonly string[]): Options | null {
  let name: string | null = null;
  let [list, json, check] = [false, false, false];
  let runs = RUNS_DEFAULT;
  let only: string[] | null = null;
  const rest = [...args];
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    if (arg === "--list") list = true;
    else if (arg === "--json") json = true;
    else if (arg === "--check") check = true;
    else if (arg === "--runs") runs = Number(rest.shift());
    else if (arg === "--only") only = (rest.shift() ?? "").split(",");
    else if (arg.startsWith("-") || name !== null) return null;
    else name = arg;
  }
  if (!Number.isInteger(runs) || runs < 1 || runs > RUNS_MAX) return null;
  if (only?.includes("") === true) return null;
  if (list === (name !== null)) return null;
  return { list, name, json, check, runs, only };
}
