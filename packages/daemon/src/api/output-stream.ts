/**
 * A process's output as newline-delimited JSON. Pulled by the socket: a piece is asked of the guest
 * only when the one before has left for the kernel, so a slow reader costs one piece of memory.
 */
import { PerdureError } from "@perdure/protocol";
import type { OutputEvent } from "@perdure/protocol";
import type { ProcessOutput } from "../core/command.ts";

/**
 * Ends with `exit`, `interrupted` or `error`. `closing`: where the pieces end because the daemon does,
 * the reader is told where to go on.
 */
export async function* outputLines(
  pieces: AsyncIterable<ProcessOutput>,
  firstOffset: number,
  closing: AbortSignal,
): AsyncGenerator<string> {
  let offset = firstOffset;
  try {
    for await (const piece of pieces) {
      yield line(piece);
      if (piece.type === "output") offset = piece.offset + piece.bytes.length;
      if (piece.type === "cut") offset = piece.to;
      if (piece.type === "exit" || piece.type === "interrupted") return;
    }
    if (!closing.aborted) throw new PerdureError("internal", "The output ended without an exit");
    yield line({ type: "interrupted", reason: "daemon", offset });
  } catch (error) {
    if (closing.aborted) yield line({ type: "interrupted", reason: "daemon", offset });
    else yield `${JSON.stringify({ type: "error", error: PerdureError.from(error) })}\n`;
  }
}

function line(piece: ProcessOutput): string {
  return `${JSON.stringify(piece.type === "output" ? encode(piece) : (piece satisfies OutputEvent))}\n`;
}

function encode({ bytes, ...rest }: ProcessOutput & { type: "output" }): OutputEvent {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { ...rest, data: view.toString("base64") };
}
