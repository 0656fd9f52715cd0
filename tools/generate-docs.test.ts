import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { generateDocs } from "./generate-docs.ts";

it("finds every generated page current", async () => {
  for (const [path, text] of await generateDocs()) {
    const found = await readFile(join(import.meta.dirname, "..", path), "utf8").catch(() => "");
    expect(found === text, `run: node tools/generate-docs.ts (${path})`).toBe(true);
  }
});
