/** The way out: connections that programs inside make to elsewhere. */
import { buffer } from "node:stream/consumers";
import { beforeEach, describe, expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import type { GuestLinkRig } from "./rig.ts";

export function outboundTests(rig: GuestLinkRig): void {
  describe("the way out", () => {
    beforeEach((context) => rig.needs(context, "way-out"));
    const dial = (name: string | null) => {
      const peer = rig.subject.dial?.({ name, address: "10.1.2.3", port: 443 });
      if (peer === undefined) throw new Error("Nothing inside can connect");
      return peer;
    };

    test("connections are reset while it is not open", async () => {
      const link = await rig.letOut();
      await expect(buffer(dial("a.example"))).rejects.toThrow("ECONNRESET");
      link.close("test");
    });

    test("connections wait, are told by name and port, and are carried both ways", async () => {
      const link = await rig.letOut();
      const wayOut = await link.openWayOut(10_000);
      for (const name of ["a.example", null]) {
        const peer = dial(name);
        const { value: wanted } = await wayOut.next();
        expect(wanted).toMatchObject({ name, port: 443 });
        if (name === null) expect(wanted?.address).toBe("10.1.2.3");
        peer.end("question");
        const taken = await wanted?.take();
        if (taken === undefined) throw new Error("Nothing was told");
        expect(Buffer.from((await taken.read()) ?? []).toString()).toBe("question");
        expect(await taken.read()).toBeNull();
        await taken.write(Buffer.from("answer"));
        taken.end();
        expect((await buffer(peer)).toString()).toBe("answer");
        if (wanted !== undefined) await refuses(wanted.take(), "connection_reset");
      }
      link.close("test");
    });

    test("one that is taken and closed is reset, and so are those that wait when it is left", async () => {
      const link = await rig.letOut();
      const wayOut = await link.openWayOut(10_000);
      const refused = expect(buffer(dial("a.example"))).rejects.toThrow("ECONNRESET");
      const { value: wanted } = await wayOut.next();
      (await wanted?.take())?.close();
      await refused;
      const left = expect(buffer(dial("b.example"))).rejects.toThrow("ECONNRESET");
      await wayOut.next();
      await wayOut.return?.();
      await left;
      link.close("test");
    });

    test("it is opened before the link is let out, and tells nothing before", async () => {
      const link = await rig.synced();
      const wayOut = await link.openWayOut(10_000);
      const peer = dial("early.example");
      link.letOut();
      const { value: wanted } = await wayOut.next();
      expect(wanted?.name).toBe("early.example");
      (await wanted?.take())?.end();
      expect((await buffer(peer)).length).toBe(0);
      link.close("test");
    });

    test("it is open once", async () => {
      const link = await rig.letOut();
      await link.openWayOut(10_000);
      await refuses(link.openWayOut(10_000), "bad_request");
      link.close("test");
    });

    test("it ends with the link", async () => {
      const link = await rig.letOut();
      const wayOut = await link.openWayOut(10_000);
      const next = wayOut.next();
      const ended = expect(next).rejects.toMatchObject({ code: "interrupted" });
      link.close("sleep");
      await ended;
    });
  });
}
