/**
 * Every example in a docstring of the SDK: there is one for each method, it type-checks, and it runs. So do those
 * of its README.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text as allOf } from "node:stream/consumers";
import { runInThisContext } from "node:vm";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";
import { sampleEvent } from "../../../test/contract/state-store-event.ts";
import * as sdk from "./index.ts";

interface Example {
  /** As in `PerdureClient.create`. */
  readonly subject: string;
  readonly file: string;
  readonly code: string;
}

const folder = import.meta.dirname;
const settings = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(folder, "../../../tsconfig.json"), (path) => ts.sys.readFile(path)).config,
  ts.sys,
  join(folder, "../../.."),
).options;
const sources = (await readdir(folder))
  .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"))
  .map((name) => join(folder, name));
const found = sources.flatMap(examplesOf);

/** What the public names of one source file have as examples, or null where they have none. */
function examplesOf(path: string): (Omit<Example, "code"> & { code: string | null })[] {
  const text = ts.sys.readFile(path) ?? "";
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const subjects: { name: string; node: ts.Node }[] = [];
  for (const node of source.statements) {
    const words = ts.canHaveModifiers(node) ? (ts.getModifiers(node) ?? []) : [];
    if (!words.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) continue;
    if (!ts.isClassDeclaration(node)) {
      if (ts.isFunctionDeclaration(node) && ts.getJSDocTags(node).some(isExample)) {
        subjects.push({ name: node.name?.text ?? "", node });
      }
      continue;
    }
    const owner = node.name?.text ?? "";
    if (ts.getJSDocTags(node).some(isExample)) subjects.push({ name: owner, node });
    for (const member of node.members) {
      if (!ts.isMethodDeclaration(member) || !ts.isIdentifier(member.name)) continue;
      if ((ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Protected) !== 0) continue;
      if (ts.getJSDocTags(member).some(({ tagName }) => tagName.text === "internal")) continue;
      subjects.push({ name: `${owner}.${member.name.text}`, node: member });
    }
  }
  return subjects.map(({ name, node }) => {
    const tag = ts.getJSDocTags(node).find(isExample);
    const comment = ts.getTextOfJSDocComment(tag?.comment) ?? "";
    const code = comment.replaceAll(/^```(ts)?$/gm, "").trim();
    return { subject: name, file: path, code: code === "" ? null : code };
  });
}

function isExample(tag: ts.JSDocTag): boolean {
  return tag.tagName.text === "example";
}

const examples = found.filter((each): each is Example => each.code !== null);

/** Whole programs, the first of which is for a daemon on this host. */
const readme = [
  ...readFileSync(join(folder, "../README.md"), "utf8").matchAll(/^```ts\n(.*?)^```$/gms),
].map(([, code = ""]) => code);

it("stands in the docstring of every method", () => {
  expect(examples.length).toBeGreaterThan(30);
  const without = found.filter(({ code }) => code === null).map(({ subject }) => subject);
  // It is shown by the class.
  expect(without).toEqual(["PerdureClient.close"]);
});

it("type-checks", () => {
  const entry = (file: string): string => (file.endsWith("browser.ts") ? "browser" : "index");
  const modules = new Map(
    examples.map(({ subject, file, code }, at) => [
      join(folder, `example-${at}.ts`),
      `import { Perdure, PerdureError, daemonPaths } from "./${entry(file)}.ts";
       // ${subject}
       export async function example(perdure: Perdure): Promise<void> {
         ${code}
       }`.replace(entry(file) === "browser" ? ", daemonPaths" : "\0", ""),
    ]),
  );
  for (const [at, code] of readme.entries()) {
    const module = `// README ${at}\n${code.replace('"@perdure/sdk"', '"./index.ts"')}`;
    modules.set(join(folder, `readme-${at}.ts`), module);
  }
  const host = ts.createCompilerHost(settings);
  host.readFile = (path) => modules.get(path) ?? ts.sys.readFile(path);
  host.fileExists = (path) => modules.has(path) || ts.sys.fileExists(path);
  host.getSourceFile = (path, target) => {
    const text = host.readFile(path);
    return text === undefined ? undefined : ts.createSourceFile(path, text, target, true);
  };
  const program = ts.createProgram([...modules.keys()], { ...settings, incremental: false }, host);
  const wrong = ts
    .getPreEmitDiagnostics(program)
    .map(({ file, messageText }) => [
      /\/\/ (.*)/.exec(file?.text ?? "")?.[1],
      ts.flattenDiagnosticMessageText(messageText, " "),
    ]);
  expect(wrong).toEqual([]);
});

describe("runs:", () => {
  let home: string;
  let fake: FakeServer;
  let perdure: sdk.Perdure;

  beforeAll(async () => {
    home = await mkdtemp(join(tmpdir(), "perdure-example-"));
    const socketPath = join(home, "run", "perdure.sock");
    fake = await openFakeServer(socketPath, home);
    perdure = new sdk.Perdure({ socketPath });
    // The fake's verbs append none, and of an agent that the log does not know there are none to ask for.
    const event = sampleEvent({ name: "a1", atMs: Date.now() });
    await fake.state.commit([{ kind: "append-event", event }]);
  });
  afterAll(async () => {
    await perdure.close();
    await fake.close();
    await rm(home, { recursive: true });
  });

  it.each(examples)("$subject", async ({ code }) => {
    for await (const { name } of perdure.list()) await perdure.remove(name);
    await perdure.create({ name: "a1" });
    const js = ts.transpile(code, { target: ts.ScriptTarget.ESNext });
    const names = { perdure, console: { log: () => undefined }, ...sdk };
    const text = `(async (${Object.keys(names).join(", ")}) => {\n${js}})`;
    const run = runInThisContext(text) as (...values: unknown[]) => Promise<void>;
    await run(...Object.values(names));
  });

  it("the README's program, as a process of its own", async () => {
    const root = join(folder, "../../..");
    const program = ["--input-type=module-typescript", "--eval", readme[0] ?? ""];
    const env = { ...process.env, NODE_OPTIONS: "", PERDURE_HOME: home, PERDURE_SOCKET: "" };
    const child = spawn(process.execPath, program, { cwd: root, env, stdio: "pipe" });
    const said = Promise.all([allOf(child.stdout), allOf(child.stderr)]);
    const [code] = (await once(child, "close")) as [number | null];
    const [out, err] = await said;
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(
      /^hello\n\n0 .*sdk-example is asleep\nsdk-example is awake, generation 2: continue/s,
    );
    const left = await Array.fromAsync(perdure.list());
    expect(left.filter(({ name }) => name === "sdk-example")).toEqual([]);
  });
});
