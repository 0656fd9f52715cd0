/** What a file that is no whole export is told as. */
import { PerdureError } from "@perdure/protocol";
import { Damage } from "../damage.ts";

/** `reason` reads on from "The file cannot be imported: ". */
export function invalid(reason: string, cause?: unknown): PerdureError {
  return new PerdureError("export_invalid", `The file cannot be imported: ${reason}`, {
    hint: "Export the agent again, or take another copy of the file.",
    ...(cause === undefined ? {} : { cause }),
  });
}

/** Damage in what came with the file is the file's. */
export function asInvalid(error: unknown): unknown {
  return error instanceof Damage ? invalid(error.message, error) : error;
}
