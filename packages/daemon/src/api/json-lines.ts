/**
 * Values as newline-delimited JSON, for streams that say how they ended. Pulled by the socket: a value is asked
 * for only when the one before has left for the kernel.
 *
 * No generator: one that is left before it began would not end what feeds it.
 */
import { Readable } from "node:stream";
import type { FastifyReply } from "fastify";
import { PerdureError } from "@perdure/protocol";

export interface JsonLines<T> {
  readonly values: AsyncIterable<T>;
  readonly encode: (value: T) => object;
  /** Whether nothing follows. */
  readonly isLast?: (value: T) => boolean;
  /** The last line in place of `end` or an error, once this has aborted. */
  readonly closing?: { readonly signal: AbortSignal; readonly last: object };
}

/** Answers with the lines; the head goes out at once, however long the first line takes. */
export function sendLines(reply: FastifyReply, lines: Readable): FastifyReply {
  void reply.type("application/x-ndjson").header("cache-control", "no-store").send(lines);
  reply.raw.flushHeaders();
  return reply;
}

/** Ends with a last value, `end`, `error`, or what `closing` says. */
export function jsonLines<T>({ values, encode, isLast, closing }: JsonLines<T>): Readable {
  const source = values[Symbol.asyncIterator]();
  let over = false;
  let hasEnded = false;
  /** What feeds it lets go of what it holds, also where more would have come after the last value. */
  const leave = async (): Promise<IteratorReturnResult<undefined>> => {
    if (!hasEnded) await source.return?.();
    hasEnded = true;
    return { done: true, value: undefined };
  };
  const lastLine = (line: object): object => {
    over = true;
    return closing?.signal.aborted === true ? closing.last : line;
  };
  const nextLine = async (): Promise<object> => {
    try {
      const next = await source.next();
      hasEnded = next.done === true;
      if (next.done === true) return lastLine({ type: "end" });
      if (isLast?.(next.value) === true) over = true;
      return encode(next.value);
    } catch (error) {
      hasEnded = true;
      return lastLine({ type: "error", error: PerdureError.from(error) });
    }
  };
  const lines: AsyncIterator<string> = {
    next: async () =>
      over ? leave() : { done: false, value: `${JSON.stringify(await nextLine())}\n` },
    return: () => {
      over = true;
      return leave();
    },
  };
  return Readable.from({ [Symbol.asyncIterator]: () => lines }, { objectMode: false });
}
