/** Programs on a terminal. */
import { describe, expect, test } from "vitest";
import type { GuestLink, OutputPiece } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { refuses } from "../refusal.ts";
import { collect, expectNoGap, lengthOf, text } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

const terminal = { rows: 33, columns: 101 };

/** Reads on until all that came is at least this. */
async function untilText(
  link: GuestLink,
  process: number,
  from: number,
  wanted: string,
): Promise<OutputPiece[]> {
  const pieces: OutputPiece[] = [];
  for await (const piece of link.attach(process, from)) {
    pieces.push(piece);
    if (text(pieces).includes(wanted)) break;
  }
  return pieces;
}

export function terminalTests(rig: GuestLinkRig): void {
  describe("terminal", () => {
    test("a program sees one of the size that was asked for, and what it becomes", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { process } = await link.exec(
        rig.shell("stty size; read x; stty size; echo err >&2", { terminal }),
      );
      await untilText(link, process, 0, "33 101\r\n");
      await link.resizeTerminal(process, { rows: 5, columns: 4096 });
      await link.writeStdin(process, Buffer.from("go\n"), false);
      const pieces = await collect(link, process, 0);
      expect(text(pieces, "stdout")).toBe("33 101\r\ngo\r\n5 4096\r\nerr\r\n");
      expect(text(pieces, "stderr")).toBe("");
      expect(pieces.at(-1)).toMatchObject({ type: "exit", exitCode: 0 });
      expectNoGap(pieces, 0);
      link.close("test");
    });

    test("^C is a signal to what runs on it", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("echo up; exec sleep 60", { terminal }));
      await untilText(link, process, 0, "up\r\n");
      await link.writeStdin(process, Uint8Array.of(3), false);
      const pieces = await collect(link, process, 0);
      const exit = pieces.at(-1);
      expect(exit?.type === "exit" && [exit.signal, exit.exitCode]).toEqual([2, null]);
      link.close("test");
    });

    test("the end of its input ends a program that reads lines", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { process } = await link.exec({ ...rig.shell("", { terminal }), argv: ["/bin/cat"] });
      await link.writeStdin(process, Buffer.from("line\n"), false);
      await untilText(link, process, 0, "line\r\nline\r\n");
      await link.writeStdin(process, Buffer.from("half"), true);
      const pieces = await collect(link, process, 0);
      expect(text(pieces)).toContain("line\r\nline\r\nhalf");
      expect(pieces.at(-1)).toMatchObject({ exitCode: 0 });
      await refuses(link.writeStdin(process, Buffer.from("x"), false), "process_ended");
      link.close("test");
    });

    test("a reader comes back by offset, without gap or repeat", async (context) => {
      rig.needs(context, "version-2");
      const first = await rig.letOut();
      const { process } = await first.exec(
        rig.shell("echo one; read x; echo two; read x; echo three", { terminal }),
      );
      const seen = await untilText(first, process, 0, "one\r\n");
      first.close("sleep");
      const second = await rig.letOut();
      await second.writeStdin(process, Buffer.from("\n"), false);
      seen.push(...(await untilText(second, process, lengthOf(seen), "two\r\n")));
      second.close("sleep");
      const third = await rig.letOut();
      await third.writeStdin(process, Buffer.from("\n"), false);
      seen.push(...(await collect(third, process, lengthOf(seen))));
      expect(text(seen)).toBe("one\r\n\r\ntwo\r\n\r\nthree\r\n");
      expectNoGap(seen, 0);
      third.close("test");
    });

    test("a size out of range, a process without one and one that ended are refused", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const size = { rows: 10, columns: 10 };
      for (const rows of [0, 4097, 1.5, Number.NaN]) {
        const wrong = rig.shell("true", { terminal: { rows, columns: 10 } });
        await refuses(link.exec(wrong), "bad_request");
      }
      const { process } = await link.exec(rig.shell("sleep 60"));
      await refuses(link.resizeTerminal(process, { rows: 0, columns: 1 }), "bad_request");
      await refuses(link.resizeTerminal(process, size), "not_supported");
      await link.signal(process, 9, true, DEADLINE_MS);
      await collect(link, process, 0);
      await refuses(link.resizeTerminal(process, size), "process_ended");
      await refuses(link.resizeTerminal(999_999, size), "process_not_found");
      link.close("test");
    });
  });
}
