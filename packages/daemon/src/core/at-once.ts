/** Things done at once; where one fails, not before the others have come to their end. */
export async function atOnce<T extends readonly unknown[]>(work: {
  [K in keyof T]: Promise<T[K]> | T[K];
}): Promise<T> {
  await Promise.allSettled(work);
  return await Promise.all(work);
}
