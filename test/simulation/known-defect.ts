/**
 * Defects of the core that are known and not repaired: the simulation steps around them, so that it
 * finds the next one. Each has a test of its own that says when it is repaired; then its line goes.
 */
import type { Command } from "../../packages/daemon/src/core/command.ts";

interface KnownDefect {
  readonly verb: Command["kind"] | "any";
  /** A fault point, or `crash` for the end of a machine or daemon at a step. */
  readonly at: RegExp;
  readonly why: string;
}

const known: readonly KnownDefect[] = [];

/** Why this cannot be asked of the core yet; null where it can. */
export function knownDefect(verb: Command["kind"], at: string): string | null {
  const found = known.find(
    (each) => (each.verb === "any" || each.verb === verb) && each.at.test(at),
  );
  return found?.why ?? null;
}
