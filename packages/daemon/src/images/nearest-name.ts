/** The name that a mistyped one was most likely meant to be. */

/** Edits that are taken for a slip, as a share of the longer name. */
const SLIP_SHARE = 1 / 3;

/** `null` where none of `names` is near. Of two that are as near, the first. */
export function nearestName(typed: string, names: readonly string[]): string | null {
  let nearest: string | null = null;
  let least = Infinity;
  for (const name of names) {
    const edits = editsBetween(typed.toLowerCase(), name);
    if (edits >= least || edits > Math.max(typed.length, name.length) * SLIP_SHARE) continue;
    nearest = name;
    least = edits;
  }
  return nearest;
}

/** Letters that are put in, left out or changed; two neighbours that changed places are two. */
function editsBetween(one: string, two: string): number {
  let row = Array.from({ length: two.length + 1 }, (_, at) => at);
  for (const [above, letter] of Array.from(one).entries()) {
    const next = [above + 1];
    for (const [at, other] of Array.from(two).entries()) {
      const changed = (row[at] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(changed, (row[at + 1] ?? 0) + 1, (next[at] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
