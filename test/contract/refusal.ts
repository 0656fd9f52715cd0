/** The typed error that work is refused with. */
import { PerdureError, type ErrorCode } from "@perdure/protocol";
import { expect } from "vitest";

export async function rejection(work: Promise<unknown>): Promise<PerdureError> {
  const outcome = await work.then(
    () => null,
    (error: unknown) => error,
  );
  if (!(outcome instanceof PerdureError)) throw new Error(`No typed error: ${String(outcome)}`);
  return outcome;
}

export async function refuses(work: Promise<unknown>, code: ErrorCode): Promise<PerdureError> {
  const error = await rejection(work);
  expect(error.code, error.message).toBe(code);
  return error;
}
