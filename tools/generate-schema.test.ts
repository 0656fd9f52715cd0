import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { generateSchema } from "./generate-schema.ts";

it("finds the code of every message schema current", async () => {
  for (const [path, text] of await generateSchema()) {
    const found = await readFile(join(import.meta.dirname, "..", path), "utf8").catch(() => "");
    expect(found === text, `run: node tools/generate-schema.ts (${path})`).toBe(true);
  }
});
