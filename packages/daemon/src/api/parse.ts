/** Requests into typed values. What does not fit is `bad_request`, and the message names the field. */
import { PerdureError } from "@perdure/protocol";
import type { z } from "zod";

/** `place` is what the caller sees: "body", "query", "path". */
export function parse<S extends z.ZodType>(schema: S, value: unknown, place: string): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const field = [place, ...(issue?.path ?? []).map(String)].join(".").slice(0, FIELD_LENGTH_MAX);
  throw new PerdureError("bad_request", `Cannot read "${field}": ${describe(issue)}`, {
    hint: "Correct the field and send the request again.",
    details: { field },
  });
}

const FIELD_LENGTH_MAX = 200;
const MESSAGE_LENGTH_MAX = 500;

function describe(issue: z.core.$ZodIssue | undefined): string {
  if (issue === undefined) return "it does not fit";
  if (issue.code === "unrecognized_keys") {
    const names = issue.keys.map((key) => `"${key}"`).join(", ");
    return `there is no field ${names}`.slice(0, MESSAGE_LENGTH_MAX);
  }
  return issue.message.charAt(0).toLowerCase() + issue.message.slice(1, MESSAGE_LENGTH_MAX);
}
