/** The table of settings against what the sources name. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { daemonSettingsHelp, settings } from "./setting.ts";

const packages = join(import.meta.dirname, "../..");
/** Only tests set it: a process that ends itself at a named step. */
const ofTests = ["PERDURE_CRASH"];

function namedIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(ts|mjs)$/.test(name) && !/\.test\.ts$|(^|\/)setting\.ts$/.test(name))
    .flatMap(
      (name) => readFileSync(join(folder, name), "utf8").match(/\bPERDURE_[A-Z_]+\b/g) ?? [],
    );
}

it("has every variable that a source names, and no other", () => {
  const sources = readdirSync(packages).flatMap((name) => namedIn(join(packages, name, "src")));
  const named = new Set(sources.filter((name) => !ofTests.includes(name)));
  expect([...named].sort()).toEqual(settings.map(({ name }) => name).sort());
  // Those of tests are there as well: a name that nothing has excludes nothing.
  expect(sources).toEqual(expect.arrayContaining(ofTests));
});

it("tells what the daemon reads, within 100 columns", () => {
  const help = daemonSettingsHelp("variable");
  expect(help).toMatch(/PERDURE_HOME\n +data directory \(default: \/var\/lib\/perdure as root/);
  expect(help).not.toContain("PERDURE_URL");
  expect(daemonSettingsHelp("option")).toMatch(/--spares N\n.*PERDURE_SPARES; 1\)/);
  for (const line of help.split("\n")) expect(line.length).toBeLessThanOrEqual(100);
});
