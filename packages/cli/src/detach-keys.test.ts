import fc from "fast-check";
import { expect, it } from "vitest";
import { createDetachKeys } from "./detach-keys.ts";

/** What comes through of `pieces`, and whether it detached. */
function type(...pieces: string[]): [string, boolean] {
  const push = createDetachKeys();
  let text = "";
  for (const piece of pieces) {
    const { bytes, detached } = push(Buffer.from(piece));
    text += Buffer.from(bytes).toString();
    if (detached) return [text, true];
  }
  return [text, false];
}

it.each([
  [["abc"], "abc", false],
  [["ab\x10\x11cd"], "ab", true],
  [["ab\x10", "\x11cd"], "ab", true],
  [["\x10x"], "\x10x", false],
  [["\x10", "x"], "\x10x", false],
  [["\x10\x10\x11"], "\x10", true],
  [["\x11\x10"], "\x11", false],
  [["\x10", "\x10", "\x10a"], "\x10\x10\x10a", false],
])("takes %j for %j, detached: %s", (pieces, text, detached) => {
  expect(type(...pieces)).toEqual([text, detached]);
});

it("passes everything on but the keys, however it is cut into pieces", () => {
  const key = fc.constantFrom("\x10", "\x11", "a");
  fc.assert(
    fc.property(fc.array(fc.array(key).map((keys) => keys.join(""))), (pieces) => {
      const whole = pieces.join("");
      const at = whole.indexOf("\x10\x11");
      const [text, detached] = type(...pieces);
      expect(detached).toBe(at >= 0);
      // A Ctrl-P at the end is still held.
      const held = whole.endsWith("\x10") ? whole.slice(0, -1) : whole;
      expect(text).toBe(at >= 0 ? whole.slice(0, at) : held);
    }),
  );
});
