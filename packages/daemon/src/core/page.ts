/** Pages of lists. A page goes on behind the last of the one before, also where that is gone by then. */

export interface Page<T> {
  readonly page: readonly T[];
  /** Where the next page goes on; null on the last. */
  readonly next: string | null;
}

/** The first `limit` of `found`, in which at least one more stands where there is one. */
export function firstPage<T>(
  found: readonly T[],
  limit: number,
  placeOf: (last: T) => string | number,
): Page<T> {
  const page = found.slice(0, limit);
  const last = page.at(-1);
  const isLast = found.length <= limit || last === undefined;
  return { page, next: isLast ? null : String(placeOf(last)) };
}
