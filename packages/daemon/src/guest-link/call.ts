/** A call: one request, its one answer, and a deadline. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import { startDeadline } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { statusError, tag, type Operation } from "./operation.ts";

const MESSAGE_BYTES_MAX = 65_536;

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

/** A message may name a path or a link's target, which a program inside has made. */
export function answerError(action: string, status: number, fields: Fields): PerdureError {
  const said = fields.has(tag.message)
    ? fields.anyString(tag.message, MESSAGE_BYTES_MAX)
    : undefined;
  return statusError(action, status, said);
}

export function timeoutError(action: string, deadlineMs: number): PerdureError {
  return new PerdureError(
    "guest_timeout",
    `Cannot ${action}: the guest did not answer within ${deadlineMs} ms`,
  );
}
