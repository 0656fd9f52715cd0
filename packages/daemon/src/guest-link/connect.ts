/** Connections to TCP ports inside: bytes both ways under credit, each direction with an end of its own. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { PortConnection } from "../core/ports/guest-link.ts";
import { answerError, timeoutError } from "./call.ts";
import { ANSWER_GRACE_MS, startDeadline } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { Receiver } from "./receiver.ts";
import { Sender } from "./sender.ts";
import { requireVersion } from "./version.ts";

export async function connectPort(
  epoch: Epoch,
  clock: Clock,
  port: number,
  deadlineMs: number,
): Promise<PortConnection> {
  const action = `connect to port ${port}`;
  requireVersion(epoch, operation.connect, action);
  const receiver = new Receiver();
  const sender = new Sender(epoch, action, () => undefined);
  const fields = new FieldWriter().number(tag.port, port).number(tag.deadlineMs, deadlineMs);
  const stream = epoch.open(
    operation.connect,
    fields.finish(),
    { control: false, action },
    {
      ...sender.events,
      duplex: true,
      data: (payload) => receiver.push(payload),
      end: (status, answer) => {
        const over = `use the connection to port ${port}`;
        const error = status === 0 ? null : answerError(over, status, answer);
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
      const message = `Cannot use the connection to port ${port}: it was closed`;
      sender.fail(new PerdureError("cancelled", message));
    },
  };
}
