/** A connection of the fake guest: a pair of streams in place of a socket, with the same ends and resets. */
import type { Duplex } from "node:stream";
import { FieldWriter } from "../field.ts";
import { status } from "../operation.ts";
import type { FakeStream } from "./fake-port.ts";

const WINDOW_BYTES = 64 * 1024;
const DATA_BYTES_MAX = 32 * 1024;

/** Answers, and carries bytes between the stream and a program that has `theirs`. */
export function carryPair(stream: FakeStream, ours: Duplex, theirs: Duplex): void {
  let guestEnded = false;
  let hostEnded = false;
  let over = false;
  const breakOff = (): void => {
    over = true;
    stream.onClose = undefined;
    theirs.destroy(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
    ours.destroy();
  };
  const reset = (): void => {
    if (over) return;
    stream.end(status.connectionReset);
    breakOff();
  };
  const leaveIfOver = (): void => {
    if (!guestEnded || !hostEnded) return;
    over = true;
    stream.drop();
  };
  const pump = (): void => {
    while (stream.open && !guestEnded && stream.credit > 0) {
      const wanted = Math.min(stream.credit, DATA_BYTES_MAX, ours.readableLength);
      const bytes = wanted === 0 ? null : (ours.read(wanted) as Buffer | null);
      if (bytes === null) {
        ours.read(0);
        return;
      }
      stream.data(bytes);
    }
  };
  stream.respond(status.ok, new FieldWriter(), false);
  ours.on("readable", pump);
  ours.on("end", () => {
    guestEnded = true;
    stream.endOwn();
    leaveIfOver();
  });
  ours.on("error", () => undefined);
  theirs.on("error", () => undefined);
  theirs.on("close", () => {
    // Destroyed, or closed in order: then both ends were seen.
    if (!theirs.readableEnded || !theirs.writableFinished) reset();
  });
  stream.onWindow = pump;
  stream.onClose = breakOff;
  stream.grant(WINDOW_BYTES);
  stream.onData = (bytes) => {
    const { length } = bytes;
    ours.write(Buffer.from(bytes), () => {
      if (!hostEnded && !over) stream.grant(length);
    });
  };
  stream.onEnd = () => {
    hostEnded = true;
    ours.end();
    leaveIfOver();
  };
}
