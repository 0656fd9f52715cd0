/** Programs that are started, and readers of what they say. */
import { describe, expect, test } from "vitest";
import type { OutputPiece } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { refuses } from "../refusal.ts";
import { collect, ended, expectNoGap, lengthOf, text } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function execTests(rig: GuestLinkRig): void {
  describe("exec and attach", () => {
    test("output of both channels, then the exit code", async () => {
      const link = await rig.letOut();
      const { process, pid } = await link.exec(
        rig.shell("echo out; sleep 0.2; echo err >&2; exit 3"),
      );
      expect(pid).toBeGreaterThan(0);
      const pieces = await collect(link, process, 0);
      expect(text(pieces, "stdout")).toBe("out\n");
      expect(text(pieces, "stderr")).toBe("err\n");
      expect(pieces.at(-1)).toEqual({ type: "exit", exitCode: 3, signal: null, timedOut: false });
      expectNoGap(pieces, 0);
      link.close("test");
    });

    test("argv and environment arrive as they were given", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec({ ...rig.shell(""), argv: ["/bin/echo", "a b", "ü;$x"] });
      expect(text(await collect(link, process, 0))).toBe("a b ü;$x\n");
      link.close("test");
    });

    test("what cannot be started says why", async () => {
      const link = await rig.letOut();
      await refuses(link.exec({ ...rig.shell(""), argv: ["/does/not/exist"] }), "exec_failed");
      await refuses(
        link.exec(rig.shell("true", { user: "nobody-of-that-name" })),
        "user_not_found",
      );
      await refuses(link.exec(rig.shell("true", { cwd: "/does/not/exist" })), "path_not_found");
      await refuses(link.exec({ ...rig.shell(""), argv: [] }), "bad_request");
      await refuses(link.exec(rig.shell("true", { env: { "A=B": "1" } })), "bad_request");
      await refuses(link.exec(rig.shell("é".repeat(40_000))), "too_large");
      await refuses(link.exec(rig.shell("ÉPERDURE-RESYNC\n")), "bad_request");
      await link.info(DEADLINE_MS);
      link.close("test");
    });

    test("a process goes on without a reader, and a reader comes back by offset", async () => {
      const first = await rig.letOut();
      const { process } = await first.exec(
        rig.shell("echo one; sleep 0.3; echo two; sleep 0.3; echo three"),
      );
      const seen: OutputPiece[] = [];
      for await (const piece of first.attach(process, 0)) {
        seen.push(piece);
        break;
      }
      first.close("sleep");
      const second = await rig.letOut();
      const from = lengthOf(seen);
      seen.push(...(await collect(second, process, from)));
      expect(text(seen)).toBe("one\ntwo\nthree\n");
      expectNoGap(seen, 0);
      second.close("test");
    });

    test("two readers get the same, and leaving ends only one", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("echo a; sleep 0.3; echo b"));
      const left = (async () => {
        for await (const piece of link.attach(process, 0)) return piece;
        return undefined;
      })();
      const stayed = collect(link, process, 0);
      expect((await left)?.type).toBe("output");
      expect(text(await stayed)).toBe("a\nb\n");
      link.close("test");
    });

    test("return() while a piece is awaited ends at once", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 60"));
      const iterator = link.attach(process, 0)[Symbol.asyncIterator]();
      const pending = iterator.next();
      await link.info(DEADLINE_MS);
      await iterator.return?.();
      expect((await pending).done).toBe(true);
      await link.signal(process, 9, true, DEADLINE_MS);
      link.close("test");
    });

    test("a link that closes interrupts readers, with the next offset, after what was received", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("echo early; sleep 60"));
      const seen: OutputPiece[] = [];
      const reading = (async () => {
        for await (const piece of link.attach(process, 0)) {
          seen.push(piece);
          link.close("sleep");
        }
      })();
      const error = await refuses(reading, "interrupted");
      expect(text(seen)).toBe("early\n");
      expect(error.details).toMatchObject({ offset: 6, reason: "sleep" });
      const next = await rig.letOut();
      await next.signal(process, 9, true, DEADLINE_MS);
      next.close("test");
    });

    test("megabytes arrive whole and in order under back-pressure", async () => {
      const link = await rig.letOut();
      const bytes = 6 * 1024 * 1024;
      const { process } = await link.exec(
        rig.shell(`sleep 0.3; head -c ${bytes} /dev/zero`, { logBytes: 1024 * 1024 }),
      );
      const pieces: OutputPiece[] = [];
      for await (const piece of link.attach(process, 0)) {
        pieces.push(piece);
        if (pieces.length % 64 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
      }
      expectNoGap(pieces, 0);
      expect(lengthOf(pieces)).toBe(bytes);
      expect(pieces.some((piece) => piece.type === "cut")).toBe(false);
      link.close("test");
    });

    test("output over the limit keeps head and tail and says what was cut", async () => {
      const link = await rig.letOut();
      const bytes = 512 * 1024;
      const script = `head -c ${bytes} /dev/zero; echo last`;
      const { process } = await link.exec(rig.shell(script, { logBytes: 65_536 }));
      await ended(link, process);
      const pieces = await collect(link, process, 0);
      expectNoGap(pieces, 0);
      expect(pieces.some((piece) => piece.type === "cut")).toBe(true);
      expect(pieces[0]?.type).toBe("output");
      expect(text(pieces.slice(-2)).endsWith("last\n")).toBe(true);
      expect(lengthOf(pieces)).toBe(bytes + 5);
      link.close("test");
    });

    test("a reader that does not consume stalls no other stream", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("head -c 8000000 /dev/zero; sleep 60"));
      const iterator = link.attach(process, 0)[Symbol.asyncIterator]();
      await iterator.next();
      for (let i = 0; i < 3; i++) {
        const other = await link.exec(rig.shell("echo fine"));
        expect(text(await collect(link, other.process, 0))).toBe("fine\n");
        await link.info(DEADLINE_MS);
      }
      await iterator.return?.();
      await link.signal(process, 9, true, DEADLINE_MS);
      link.close("test");
    });

    test("an offset beyond the log is refused", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("echo x"));
      await ended(link, process);
      await refuses(collect(link, process, 1_000_000), "bad_request");
      link.close("test");
    });

    test("a process that does not exist is not found", async () => {
      const link = await rig.letOut();
      await refuses(collect(link, 999_999, 0), "process_not_found");
      await refuses(link.writeStdin(999_999, new Uint8Array(1), true), "process_not_found");
      await refuses(link.writeStdin(999_999, new Uint8Array(0), false), "process_not_found");
      await refuses(link.signal(999_999, 9, true, DEADLINE_MS), "process_not_found");
      await refuses(link.forget(999_999), "process_not_found");
      link.close("test");
    });

    test("a time-out ends the process and says so", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 60", { timeoutMs: 200 }));
      expect((await collect(link, process, 0)).at(-1)).toMatchObject({
        signal: 9,
        timedOut: true,
      });
      link.close("test");
    });
  });
}
