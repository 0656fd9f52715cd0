/** Every public method of E2B's SDK, in two versions, against real VMs; and that none is left out of the table. */
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { unsupportedMethods } from "../../packages/daemon/src/api/e2b/e2b-table.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { asksNothing, claimed, refused, runE2bMethods, sdkVersions } from "./e2b-methods.ts";
import { freePort } from "./free-port.ts";

const daemon = new DaemonUnderTest();

beforeAll(async () => {
  const listen = `127.0.0.1:${await freePort()}`;
  await daemon.start({ PERDURE_LISTEN: listen });
  const { e2bKey } = await daemon.client.keys.create({ name: "e2b", scope: "admin" });
  process.env["E2B_API_KEY"] = e2bKey;
  process.env["E2B_API_URL"] = `http://${listen}`;
  process.env["E2B_SANDBOX_URL"] = `http://${listen}`;
});
afterAll(async () => {
  expect(await daemon.end()).toEqual([]);
});

/** Classes that are called otherwise by those who use them. */
const names: Readonly<Record<string, string>> = { SandboxApi: "Sandbox", TemplateBase: "Template" };
const classes = new Set([
  ...["Sandbox", "SandboxApi", "SandboxPaginator", "SnapshotPaginator", "Paginator", "Commands"],
  ...["CommandHandle", "Filesystem", "WatchHandle", "Pty", "Git", "Volume", "Secret"],
  ...["SecretPaginator", "TemplateBase"],
]);

/** Or not there: others of the table are it. */
const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected | ts.ModifierFlags.Abstract;

/** What its declarations say that everybody may call or read. */
function publicMethods(entry: string): Set<string> {
  const path = fileURLToPath(import.meta.resolve(entry)).replace(/\.m?js$/, ".d.ts");
  const source = ts.createProgram([path], {}).getSourceFile(path);
  if (source === undefined) throw new Error(`${path} is not there`);
  const found = new Set<string>();
  for (const node of source.statements) {
    if (!ts.isClassDeclaration(node) || !classes.has(node.name?.text ?? "")) continue;
    const own = node.name?.text ?? "";
    for (const member of node.members) {
      if (!ts.isMethodDeclaration(member) && !ts.isGetAccessor(member)) continue;
      const flags = ts.getCombinedModifierFlags(member);
      if ((flags & hidden) !== 0) continue;
      const isStatic = (flags & ts.ModifierFlags.Static) !== 0;
      const name = member.name.getText(source);
      const isTemplate = own === "TemplateBase" && !isStatic;
      found.add(`${isTemplate ? own : (names[own] ?? own)}${isStatic ? "." : "#"}${name}`);
    }
  }
  return found;
}

test.each([["e2b"], ["e2b-2.50"]])("no public method of %s is left out of the table", (entry) => {
  const known = new Set([...Object.keys(claimed), ...Object.keys(refused)]);
  const all = [...publicMethods(entry)].filter(
    (method) => !asksNothing.some((pattern) => pattern.test(method)),
  );
  expect(all.filter((method) => !known.has(method))).toEqual([]);
  expect([...known].filter((method) => !all.includes(method))).toEqual([]);
  expect(Object.keys(refused).sort()).toEqual([...unsupportedMethods].sort());
});

describe.each(sdkVersions)("SDK %s", (_version, load) => {
  test("every method does what the table says, over five pauses", async () => {
    const failed: string[] = [];
    let passed = 0;
    for await (const { method, error } of runE2bMethods(await load())) {
      if (error === null) passed++;
      else failed.push(`${method}: ${inspect(error)}`);
    }
    expect(failed).toEqual([]);
    expect(passed).toBe(Object.keys({ ...claimed, ...refused }).length);
  });
});
