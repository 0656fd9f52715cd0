/** What queries of several routes have in common. Values of a query are text. */
import { z } from "zod";

/** `true` or `false`, as it is written; absent: `otherwise`. */
export function flag(otherwise: "true" | "false") {
  return z
    .enum(["true", "false"])
    .default(otherwise)
    .transform((text) => text === "true");
}
