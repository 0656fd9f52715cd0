/**
 * Verify: is everything that the agent's checkpoints name still what was written? Reads all of it and
 * changes nothing. It takes no turn in the agent's lane, so the agent sleeps, wakes and runs meanwhile; a
 * checkpoint that is collected while it is read is told as gone.
 */
import type { VerifiedCheckpoint, VerifiedPart, VerifyEvent } from "@perdure/protocol";
import type { Agent } from "./agent.ts";
import type { CheckpointRow } from "./checkpoint.ts";
import { pickCheckpoint } from "./keep.ts";
import type { Parts } from "./parts.ts";

/**
 * What `verify` finds, as it finds it.
 * @param wanted id or name; absent: every one that is kept
 * @throws `checkpoint_not_found`
 */
export async function verifyAgent(
  parts: Parts,
  agent: Agent,
  wanted: string | undefined,
  signal: AbortSignal,
): Promise<AsyncIterable<VerifyEvent>> {
  const all = await parts.state.checkpoints(agent.id);
  const rows = wanted === undefined ? all : [pickCheckpoint(agent, all, wanted)];
  return verifyEach(parts, rows, signal);
}

async function* verifyEach(
  parts: Parts,
  rows: readonly CheckpointRow[],
  signal: AbortSignal,
): AsyncGenerator<VerifyEvent> {
  const counts = { good: 0, damaged: 0, gone: 0 };
  const known = new Map<string, VerifiedPart>();
  const left = new AbortController();
  const ended = AbortSignal.any([signal, left.signal]);
  try {
    for (const row of rows) {
      const found = yield* verifyOne(parts, row, known, ended);
      counts[found.verdict]++;
      yield { type: "checkpoint", ...found };
    }
    yield { type: "end", ...counts };
  } finally {
    left.abort();
  }
}

async function* verifyOne(
  parts: Parts,
  row: CheckpointRow,
  known: Map<string, VerifiedPart>,
  signal: AbortSignal,
): AsyncGenerator<VerifyEvent, VerifiedCheckpoint> {
  const { id, name, kind } = row;
  // A slow reader is told the newest figure, not each.
  const progress = { readBytes: 0, totalBytes: 0 };
  let news = Promise.withResolvers<null>();
  const onProgress = (readBytes: number, totalBytes: number): void => {
    Object.assign(progress, { readBytes, totalBytes });
    news.resolve(null);
  };
  const verification = { digest: row.digest, signal, known, onProgress };
  const work = parts.checkpoints.verify(row.agent, id, verification);
  work.catch(() => undefined); // Awaited below, unless the reader leaves.
  for (;;) {
    const found = await Promise.race([work, news.promise]);
    if (found !== null) {
      const isBad = found.some(({ verdict }) => verdict === "damaged");
      // A row goes before its files do: whose row is still there should have them.
      if (isBad && (await parts.state.checkpoint(id)) === null) {
        forgetDamaged(known);
        return { checkpoint: id, name, kind, verdict: "gone", parts: [] };
      }
      return { checkpoint: id, name, kind, verdict: isBad ? "damaged" : "good", parts: [...found] };
    }
    news = Promise.withResolvers();
    yield { type: "progress", checkpoint: id, ...progress };
  }
}

/** What a checkpoint that is gone had lost need not be missing for the others. */
function forgetDamaged(known: Map<string, VerifiedPart>): void {
  for (const [key, { verdict }] of known) if (verdict === "damaged") known.delete(key);
}
