import { Duplex } from "node:stream";
import { expect, test } from "vitest";
import { BULK_QUEUE_BYTES, QUEUE_BYTES_MAX, Transport, TURN_BYTES } from "./transport.ts";

const CHUNK_BYTES = 65_536;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a flood is read in turns, and goes on being read", async () => {
  let left = 2000;
  const socket = new Duplex({
    read() {
      this.push(left-- > 0 ? Buffer.alloc(CHUNK_BYTES) : null);
    },
    write: (_chunk, _encoding, done) => done(),
  });
  let received = 0;
  let inTurn = 0;
  let most = 0;
  let ended = "";
  const state = { ended: false };
  new Transport(socket, {
    received: (chunk) => {
      received += chunk.length;
      inTurn += chunk.length;
      most = Math.max(most, inTurn);
    },
    ended: (reason) => {
      ended = reason;
      state.ended = true;
    },
  });
  while (!state.ended) {
    await turn();
    inTurn = 0;
  }
  expect(received).toBe(2000 * CHUNK_BYTES);
  expect(most).toBeLessThanOrEqual(2 * TURN_BYTES);
  expect(ended).toContain("closed");
});

test("bulk waits while much is unsent, and beyond the bound the link is given up", async () => {
  const written: (() => void)[] = [];
  const socket = new Duplex({
    read: () => undefined,
    write: (_chunk, _encoding, done) => written.push(done),
  });
  const ends: string[] = [];
  const transport = new Transport(socket, {
    received: () => undefined,
    ended: (reason) => ends.push(reason),
  });
  let drained = 0;
  const wait = (): void => void transport.drained().then(() => drained++);
  wait();
  await turn();
  expect(drained).toBe(1);
  while (transport.queuedBytes <= BULK_QUEUE_BYTES) transport.send(new Uint8Array(CHUNK_BYTES));
  wait();
  await turn();
  expect(drained).toBe(1);
  while (transport.queuedBytes > BULK_QUEUE_BYTES) {
    written.shift()?.();
    await turn();
  }
  expect(drained).toBe(2);

  while (transport.queuedBytes <= QUEUE_BYTES_MAX - CHUNK_BYTES) {
    transport.send(new Uint8Array(CHUNK_BYTES));
  }
  expect(ends).toEqual([]);
  wait();
  transport.send(new Uint8Array(CHUNK_BYTES));
  transport.send(new Uint8Array(CHUNK_BYTES));
  await turn();
  expect(ends).toEqual(["the guest does not read the link"]);
  expect(drained).toBe(3);
});

test("what is sent together leaves in one write, also right before the end", async () => {
  const writes: number[] = [];
  const socket = new Duplex({
    read: () => undefined,
    write: (_chunk, _encoding, done) => {
      writes.push(1);
      done();
    },
    writev: (chunks, done) => {
      writes.push(chunks.length);
      done();
    },
  });
  const transport = new Transport(socket, { received: () => undefined, ended: () => undefined });
  for (let i = 0; i < 4; i++) transport.send(new Uint8Array(10));
  expect(writes).toEqual([]);
  await Promise.resolve();
  await turn();
  expect(writes).toEqual([4]);
  for (let i = 0; i < 3; i++) transport.send(new Uint8Array(10));
  transport.destroy();
  expect(writes).toEqual([4, 3]);
});

test("a link that breaks is told in words, with what the system said beside them", async () => {
  const socket = new Duplex({ read: () => undefined });
  const ends: unknown[] = [];
  new Transport(socket, {
    received: () => undefined,
    ended: (reason, cause) => ends.push(reason, cause),
  });
  const cause = new Error("read ECONNRESET");
  socket.destroy(cause);
  await turn();
  expect(ends).toEqual(["the link broke", cause]);
});
