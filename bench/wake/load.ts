/** What runs in both guests before they are compared: random bytes in memory, and a ticker. */
import { ballastArgv, ballastLine, BALLAST_SIGNAL } from "../ballast.ts";
import { readUntil, type Inside, type Program } from "../inside.ts";
import { newMark, tickerArgv } from "../ticker.ts";

export interface Ballast {
  /** @throws where the bytes are not those that were written at first */
  verify(): Promise<void>;
}

/** Fills `bytes` of the guest's memory at random; none where 0. */
export async function startBallast(inside: Inside, bytes: number): Promise<Ballast> {
  if (bytes === 0) return { verify: () => Promise.resolve() };
  const program: Program = await inside.start(ballastArgv(bytes));
  const first = await readUntil(program, ballastLine);
  let { next } = first;
  return {
    async verify() {
      await program.signal(BALLAST_SIGNAL);
      const line = await readUntil(program, ballastLine, next);
      next = line.next;
      if (line.text !== first.text) throw new Error("Memory changed on the way");
    },
  };
}

export async function startTicker(inside: Inside): Promise<Buffer> {
  const mark = newMark();
  await readUntil(await inside.start(tickerArgv(mark)), /ticking/);
  return mark;
}
