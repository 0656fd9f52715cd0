/** A call: one request, its one answer, and a deadline. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import { startDeadline } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { statusError, tag, type Operation } from "./operation.ts";

export interface Call<T> {
  readonly op: Operation;
  readonly fields?: FieldWriter;
  /** As it reads after "Cannot". */
  readonly action: string;
  readonly deadlineMs: number;
  /** Allowed before the agent is let out. */
  readonly control: boolean;
  /** Runs while the answer is taken in, so that a malformed one closes the link. */
  readonly decode: (fields: Fields) => T;
}

export async function call<T>(epoch: Epoch, clock: Clock, wanted: Call<T>): Promise<T> {
  const { op, action, deadlineMs, control, decode } = wanted;
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const fields = (wanted.fields ?? new FieldWriter()).finish();
  const stream = epoch.open(
    op,
    fields,
    { control, action },
    {
      response(status, answer) {
        if (status === 0) resolve(decode(answer));
        else reject(answerError(action, status, answer));
      },
      closed: reject,
    },
  );
  const stop = startDeadline(clock, deadlineMs, () => {
    stream.cancel();
    reject(timeoutError(action, deadlineMs));
  });
  try {
    return await promise;
  } finally {
    stop();
  }
}

export function answerError(action: string, status: number, fields: Fields): PerdureError {
  return statusError(action, status, fields.optionalString(tag.message));
}

export function timeoutError(action: string, deadlineMs: number): PerdureError {
  return new PerdureError(
    "guest_timeout",
    `Cannot ${action}: the guest did not answer within ${deadlineMs} ms`,
  );
}
