/** Connections to TCP ports inside. */
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { Duplex } from "node:stream";
import { buffer } from "node:stream/consumers";
import { beforeEach, describe, expect, test } from "vitest";
import type {
  GuestLink,
  PortConnection,
} from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { refuses, rejection } from "../refusal.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

const MIB = 1024 * 1024;
const PIECE_BYTES = 50_000;

async function rest(connection: PortConnection): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for (;;) {
    const piece = await connection.read();
    if (piece === null) return Buffer.concat(pieces);
    pieces.push(piece);
  }
}

export function connectTests(rig: GuestLinkRig): void {
  describe("connections to ports", () => {
    beforeEach((context) => rig.needs(context, "version-3"));

    /** One connection, and the program's end of it. */
    async function connected(link: GuestLink): Promise<{
      connection: PortConnection;
      peer: Duplex;
      breakOff: () => void;
      close: () => Promise<void>;
    }> {
      const { promise, resolve } = Promise.withResolvers<[Duplex, () => void]>();
      const { port, close } = await rig.subject.listen((...both) => resolve(both));
      const connection = await link.connect(port, DEADLINE_MS);
      const [peer, breakOff] = await promise;
      return { connection, peer, breakOff, close };
    }

    test("each side ends by itself, the host first", async () => {
      const link = await rig.letOut();
      const { connection, peer, close } = await connected(link);
      await connection.write(Buffer.from("question"));
      connection.end();
      expect((await buffer(peer)).toString()).toBe("question");
      peer.end("answer");
      expect((await rest(connection)).toString()).toBe("answer");
      expect(await connection.read()).toBeNull();
      connection.close();
      await close();
      link.close("test");
    });

    test("each side ends by itself, the program first", async () => {
      const link = await rig.letOut();
      const { connection, peer, close } = await connected(link);
      peer.end("hello");
      expect((await rest(connection)).toString()).toBe("hello");
      const heard = buffer(peer);
      await connection.write(Buffer.from("late"));
      connection.end();
      expect((await heard).toString()).toBe("late");
      await close();
      link.close("test");
    });

    test("megabytes go both ways at once and stay whole", async () => {
      const link = await rig.letOut();
      const { port, close } = await rig.subject.listen((peer) => peer.pipe(peer));
      const connection = await link.connect(port, DEADLINE_MS);
      const sent = createHash("sha256");
      const feed = async (): Promise<void> => {
        for (let at = 0; at < 8 * MIB; at += PIECE_BYTES) {
          const piece = crypto.getRandomValues(new Uint8Array(PIECE_BYTES));
          sent.update(piece);
          await connection.write(piece);
        }
        connection.end();
      };
      const [back] = await Promise.all([rest(connection), feed()]);
      expect(createHash("sha256").update(back).digest("hex")).toBe(sent.digest("hex"));
      await close();
      link.close("test");
    });

    test("who reads nothing holds up the other side and no other call", async () => {
      const link = await rig.letOut();
      const { connection, peer, close } = await connected(link);
      const block = Buffer.alloc(MIB, 7);
      // The program is not read: beyond windows and sockets its bytes wait with it.
      let taken = 0;
      const chatter = (async () => {
        while (!peer.destroyed && taken < 256 * MIB) {
          taken += MIB;
          if (!peer.write(block)) await Promise.race([once(peer, "drain"), once(peer, "close")]);
        }
      })().catch(() => undefined);
      let given = 0;
      const giving = new AbortController();
      const feed = (async () => {
        while (!giving.signal.aborted) {
          await connection.write(block);
          given += MIB;
        }
      })().catch(() => undefined);
      for (let before = -1; before !== taken + given;) {
        before = taken + given;
        await link.info(DEADLINE_MS);
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      expect(taken + given).toBeLessThan(128 * MIB);
      giving.abort();
      connection.close();
      await Promise.all([chatter, feed]);
      await close();
      link.close("test");
    });

    test("a port that nobody listens on is refused", async () => {
      const link = await rig.letOut();
      const { port, close } = await rig.subject.listen(() => undefined);
      await close();
      await refuses(link.connect(port, DEADLINE_MS), "port_refused");
      await refuses(link.connect(0, DEADLINE_MS), "bad_request");
      await refuses(link.connect(65_536, DEADLINE_MS), "bad_request");
      link.close("test");
    });

    test("a program that breaks off is connection_reset", async () => {
      const link = await rig.letOut();
      const { connection, breakOff, close } = await connected(link);
      breakOff();
      const error = await rejection(rest(connection));
      expect(error.code).toBe("connection_reset");
      await refuses(connection.write(Buffer.from("x")), "connection_reset");
      await close();
      link.close("test");
    });

    test("a host that closes breaks it off for the program", async () => {
      const link = await rig.letOut();
      const { connection, peer, close } = await connected(link);
      const failed = new Promise<NodeJS.ErrnoException>((resolve) => peer.once("error", resolve));
      await connection.write(Buffer.from("half of it"));
      const reading = connection.read();
      connection.close();
      expect(await reading).toBeNull();
      peer.resume();
      expect((await failed).code).toBe("ECONNRESET");
      await close();
      link.close("test");
    });

    test("the end of the link interrupts it, and the program sees it broken off", async () => {
      const link = await rig.letOut();
      const { connection, peer, close } = await connected(link);
      const failed = new Promise<NodeJS.ErrnoException>((resolve) => peer.once("error", resolve));
      peer.resume();
      peer.write("before");
      expect(Buffer.from((await connection.read()) ?? []).toString()).toBe("before");
      const reading = rejection(connection.read());
      link.close("sleep");
      expect(await reading).toMatchObject({ code: "interrupted", details: { reason: "sleep" } });
      await refuses(connection.write(Buffer.from("x")), "interrupted");
      const next = await rig.letOut();
      expect((await failed).code).toBe("ECONNRESET");
      await close();
      next.close("test");
    });

    test("hundreds one after another, and many at once, leave room for others", async () => {
      const link = await rig.letOut();
      const { port, close } = await rig.subject.listen((peer) => peer.pipe(peer));
      const once = async (text: string): Promise<void> => {
        const connection = await link.connect(port, DEADLINE_MS);
        await connection.write(Buffer.from(text));
        connection.end();
        expect((await rest(connection)).toString()).toBe(text);
      };
      for (let i = 0; i < 300; i++) await once(`one ${i}`);
      await Promise.all(Array.from({ length: 100 }, (_, i) => once(`many ${i}`)));
      await link.processes();
      await close();
      link.close("test");
    });
  });
}
