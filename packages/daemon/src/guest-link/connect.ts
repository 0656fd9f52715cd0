/**
 * Connections of programs inside, made from here (CONNECT) or by them (CARRY): bytes both ways under credit,
 * each direction with an end of its own.
 */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { PortConnection } from "../core/ports/guest-link.ts";
import { answerError, timeoutError } from "./call.ts";
import { ANSWER_GRACE_MS, startDeadline } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter } from "./field.ts";
import { operation, tag, type Operation } from "./operation.ts";
import { Receiver } from "./receiver.ts";
import { Sender } from "./sender.ts";
import { requireVersion } from "./version.ts";

export function connectPort(
  epoch: Epoch,
  clock: Clock,
  port: number,
  deadlineMs: number,
): Promise<PortConnection> {
  return openConnection(epoch, clock, {
    op: operation.connect,
    fields: new FieldWriter().number(tag.port, port).number(tag.deadlineMs, deadlineMs),
    action: `connect to port ${port}`,
    use: `use the connection to port ${port}`,
    deadlineMs,
  });
}

interface ConnectionRequest {
  readonly op: Operation;
  readonly fields: FieldWriter;
  /** As they read after "Cannot". */
  readonly action: string;
  readonly use: string;
  readonly deadlineMs: number;
}

/** Resolves when the guest has answered that the connection is there. */
export async function openConnection(
  epoch: Epoch,
  clock: Clock,
  { op, fields, action, use, deadlineMs }: ConnectionRequest,
): Promise<PortConnection> {
  requireVersion(epoch, op, action);
  const receiver = new Receiver();
  const sender = new Sender(epoch, action, () => undefined);
  const stream = epoch.open(
    op,
    fields.finish(),
    { control: false, action },
    {
      ...sender.events,
      duplex: true,
      data: (payload) => receiver.push(payload),
      end: (status, answer) => {
        const error = status === 0 ? null : answerError(use, status, answer);
        receiver.finish(error);
        if (error !== null) sender.fail(error);
      },
      closed: (cause) => {
        sender.events.closed(cause);
        receiver.finish(cause);
      },
    },
  );
  sender.start(stream);
  const waitMs = deadlineMs + ANSWER_GRACE_MS;
  const stop = startDeadline(clock, waitMs, () => sender.fail(timeoutError(action, waitMs)));
  try {
    await sender.answer();
  } finally {
    stop();
  }
  receiver.start(stream);
  let hostEnded = false;
  return {
    read: () => receiver.take(),
    write: async (bytes) => {
      if (hostEnded) throw new RangeError("Bytes are written after the end");
      await sender.send(bytes);
    },
    end: () => {
      hostEnded = true;
      sender.end();
    },
    close: () => {
      receiver.stop();
      sender.fail(new PerdureError("cancelled", `Cannot ${use}: it was closed`));
    },
  };
}
