/** Input of a process. */
import { describe, expect, test } from "vitest";
import { refuses, rejection } from "../refusal.ts";
import { bytesOf, collect, ended, text } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function stdinTests(rig: GuestLinkRig): void {
  describe("stdin", () => {
    test("writes arrive in order and the end ends the program", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/cat"], stdin: true });
      const output = collect(link, process, 0);
      await link.writeStdin(process, Buffer.from("one "), false);
      await Promise.all([
        link.writeStdin(process, Buffer.from("two "), false),
        link.writeStdin(process, Buffer.from("three"), true),
      ]);
      expect(text(await output)).toBe("one two three");
      link.close("test");
    });

    test("more than any buffer goes through as the process reads", async () => {
      const link = await rig.letOut();
      const bytes = crypto.getRandomValues(new Uint8Array(65_536));
      const whole = Buffer.concat(Array.from({ length: 32 }, () => bytes));
      const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/cat"], stdin: true });
      const output = collect(link, process, 0);
      await link.writeStdin(process, whole, true);
      expect(bytesOf(await output).equals(whole)).toBe(true);
      link.close("test");
    });

    test("writes at the same time do not mix", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/cat"], stdin: true });
      const output = collect(link, process, 0);
      const parts = [1, 2, 3].map((byte) => Buffer.alloc(200_000, byte));
      await Promise.all(parts.map((part, i) => link.writeStdin(process, part, i === 2)));
      expect(bytesOf(await output).equals(Buffer.concat(parts))).toBe(true);
      link.close("test");
    });

    test("many inputs that are left open leave room for others", async () => {
      const link = await rig.letOut();
      const open: number[] = [];
      for (let i = 0; i < 70; i++) {
        const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/cat"], stdin: true });
        await link.writeStdin(process, Buffer.from(`${i} `), false);
        open.push(process);
      }
      for (const [i, process] of open.entries()) {
        await link.writeStdin(process, Buffer.from("end"), true);
        expect(text(await collect(link, process, 0))).toBe(`${i} end`);
      }
      link.close("test");
    });

    test("input that nobody reads any more is refused", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 0.1", { stdin: true }));
      await link.writeStdin(process, Buffer.from("x"), false);
      await ended(link, process);
      const error = await rejection(link.writeStdin(process, Buffer.alloc(4_000_000), false));
      expect(["stdin_closed", "process_ended"]).toContain(error.code);
      link.close("test");
    });

    test("a process without stdin refuses it", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 60"));
      await refuses(link.writeStdin(process, Buffer.from("x"), false), "stdin_closed");
      await link.signal(process, 9, true, DEADLINE_MS);
      link.close("test");
    });
  });
}
