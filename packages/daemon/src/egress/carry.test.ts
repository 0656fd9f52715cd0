import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import { afterEach, expect, test } from "vitest";
import { carry } from "./carry.ts";
import { SocketPairs } from "./fake/socket-pair.ts";

const pairs = new SocketPairs();
afterEach(() => pairs.close());

test("bytes go both ways, each direction to its own end", async () => {
  const program = await pairs.inside();
  const [outside, server] = await pairs.pair();
  let passes = 0;
  const carried = carry(program, outside, [Buffer.from("first ")], () => passes++);
  const sent = randomBytes(3_000_000);
  program.near.end(sent);
  const heard = await buffer(server.resume());
  expect(heard.subarray(0, 6).toString()).toBe("first ");
  expect(hash(heard.subarray(6))).toBe(hash(sent));
  // The program has ended its side, and is still answered.
  const answer = randomBytes(2_000_000);
  server.end(answer);
  expect(hash(await buffer(program.near))).toBe(hash(answer));
  expect(await carried).toEqual({ outBytes: 3_000_006, inBytes: 2_000_000, broken: null });
  expect(passes).toBeGreaterThan(2);
});

test("a server that takes nothing holds the program back", async () => {
  const program = await pairs.inside();
  const [outside, server] = await pairs.pair();
  const carried = carry(program, outside, [], () => undefined);
  let written = 0;
  while (written < 256 * 1024 * 1024 && (await pushed(program.near, 1024 * 1024))) {
    written += 1024 * 1024;
  }
  expect(written).toBeLessThan(64 * 1024 * 1024);
  expect(outside.writableLength).toBeLessThan(1024 * 1024);
  server.resume();
  program.near.end();
  server.end();
  program.near.resume();
  expect((await carried).broken).toBeNull();
});

/** False where nothing of it was taken for a while. */
async function pushed(socket: Socket, bytes: number): Promise<boolean> {
  if (socket.write(Buffer.alloc(bytes))) return true;
  const late = new Promise<false>((resolve) => setTimeout(() => resolve(false), 500));
  return Promise.race([once(socket, "drain").then(() => true), late]);
}

test.each(["server", "program"] as const)(
  "a %s that breaks off breaks the other off",
  async (who) => {
    const program = await pairs.inside();
    const [outside, server] = await pairs.pair();
    const carried = carry(program, outside, [], () => undefined);
    const [breaks, left] = who === "server" ? [server, program.near] : [program.near, server];
    left.write("some");
    await once(breaks.resume(), "data");
    const error = once(left.resume(), "error").then(
      () => null,
      (reason: unknown) => reason,
    );
    const closed = once(left, "close").catch(() => undefined);
    breaks.resetAndDestroy();
    await Promise.race([error, closed]);
    expect((await carried).broken).not.toBeNull();
    expect(outside.destroyed).toBe(true);
  },
);

test("a server that breaks off while bytes for it wait ends it, too", async () => {
  const program = await pairs.inside();
  const [outside, server] = await pairs.pair();
  const carried = carry(program, outside, [], () => undefined);
  while (await pushed(program.near, 1024 * 1024)) continue;
  server.resetAndDestroy();
  expect((await carried).broken).not.toBeNull();
});

function hash(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
