import { expect, it } from "vitest";
import { quoted } from "./quoted.ts";

it.each([
  ["notes.txt", "notes.txt"],
  ["my notes", '"my notes"'],
  ["", '""'],
  ["a\u001b[2Jb", String.raw`"a\u001b[2Jb"`],
  ["a\u009b2Jb", String.raw`"a\u009b2Jb"`],
  ["exe\u202egpj.txt", String.raw`"exe\u202egpj.txt"`],
  ["line\nline", String.raw`"line\nline"`],
  ["übung", '"übung"'],
])("%j is shown as %s", (text, shown) => {
  expect(quoted(text)).toBe(shown);
});
