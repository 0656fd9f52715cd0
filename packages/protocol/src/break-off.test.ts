import { once } from "node:events";
import { connect, createServer } from "node:net";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { breakOff } from "./break-off.ts";

let near: Socket;
let far: Socket;
beforeEach(async () => {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection");
  const { port } = server.address() as AddressInfo;
  near = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  await once(near, "connect");
  [far] = (await accepted) as [Socket];
  server.close();
});
afterEach(() => {
  near.destroy();
  far.destroy();
});

const ticks = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise<void>((next) => process.nextTick(next));
};

test.each([0, 1, 2, 3, 4, 5])(
  "a socket is closed, %i ticks after its end was written",
  async (count) => {
    const errors: Error[] = [];
    near.on("error", (error) => errors.push(error));
    near.end();
    await ticks(count);
    const closed = once(near, "close");
    breakOff(near);
    await closed;
    expect(errors).toEqual([]);
  },
);

test.each([
  ["before its end", () => undefined],
  ["after its end, with bytes that nobody took", () => void near.end(Buffer.alloc(64 << 20))],
])("the peer sees it broken off %s", async (_, before) => {
  before();
  const closed = once(near, "close");
  breakOff(near);
  await closed;
  const [error] = (await once(far.resume(), "error")) as [NodeJS.ErrnoException];
  expect(error.code).toBe("ECONNRESET");
});
