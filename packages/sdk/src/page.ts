/** Lists that come in pages, as one. */

interface Page<T> {
  readonly items: readonly T[];
  /** Where the next page goes on; null on the last. */
  readonly next: string | null;
}

/** Every item, fetched page by page as the loop goes on. */
export async function* eachOfPages<T>(
  fetchPage: (after: { readonly after?: string }) => Promise<Page<T>>,
): AsyncGenerator<T, undefined> {
  let after: string | null = null;
  do {
    const { items, next }: Page<T> = await fetchPage(after === null ? {} : { after });
    yield* items;
    after = next;
  } while (after !== null);
}

/** All of them at once. */
export async function allOfPages<T>(
  fetchPage: (after: { readonly after?: string }) => Promise<Page<T>>,
): Promise<T[]> {
  const all: T[] = [];
  for await (const item of eachOfPages(fetchPage)) all.push(item);
  return all;
}
