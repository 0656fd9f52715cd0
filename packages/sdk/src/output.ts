/** The stream of a process's output, from lines of JSON into events with bytes. */
import { outputEventSchema, PerdureError } from "@perdure/protocol";
import type { Exit } from "@perdure/protocol";
import { decodeBase64 } from "./bytes.ts";
import { jsonValues } from "./json-stream.ts";

/** What `output()` yields, in order. `exit` and `interrupted` are always the last. */
export type Output =
  | {
      readonly type: "output";
      readonly stream: "stdout" | "stderr";
      /** Of the first byte of `bytes`, counted over both streams together. */
      readonly offset: number;
      readonly bytes: Uint8Array;
    }
  /** Bytes `from` up to `to` are not kept any more. */
  | { readonly type: "cut"; readonly from: number; readonly to: number }
  | ({ readonly type: "exit" } & Exit)
  /** The agent slept, stopped or moved on, or the daemon ended. Read on from `offset` later. */
  | { readonly type: "interrupted"; readonly reason: string; readonly offset: number };

/** Reasons of `interrupted` after which the agent still has its memory. */
const kept = new Set(["sleep", "daemon", "the daemon stops", "the guest did not answer"]);

/** Whether the process that was followed goes on, under the same number. */
export function goesOn({ reason }: Output & { type: "interrupted" }): boolean {
  return kept.has(reason);
}

/** @throws `interrupted` where the stream breaks off; the error that the daemon met while reading */
export async function* readOutput(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Output> {
  for await (const event of jsonValues(outputEventSchema, chunks)) {
    if (event.type === "error") throw PerdureError.fromBody(event.error);
    if (event.type === "output") {
      const { data, ...rest } = event;
      yield { ...rest, bytes: decodeBase64(data) };
      continue;
    }
    yield event;
    if (event.type !== "cut") return;
  }
  throw new PerdureError("interrupted", "The output ended before the process did", {
    hint: "Attach again from the last offset.",
  });
}
