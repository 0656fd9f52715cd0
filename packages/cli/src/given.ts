/** What of `options` was given: those that are undefined are left out. */
export function given<T extends object>(
  options: T,
): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as ReturnType<typeof given<T>>;
}
