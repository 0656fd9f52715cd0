/** Lists that come in pages, as one. */
import { apiLimits } from "@perdure/protocol";
import type { Call } from "./transport.ts";

/** Everything, by as few calls as there can be. */
export async function fromPages<T>(
  fetchPage: (
    query: NonNullable<Call["query"]>,
  ) => Promise<{ readonly items: readonly T[]; readonly next: string | null }>,
): Promise<T[]> {
  const all: T[] = [];
  let after: string | undefined;
  do {
    const { items, next } = await fetchPage({ after, limit: apiLimits.listLimitMax });
    for (const item of items) all.push(item);
    after = next ?? undefined;
  } while (after !== undefined);
  return all;
}
