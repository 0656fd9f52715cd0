/**
 * What a page does with the SDK: bundled as for a browser, and run in one, or in what has no more than a
 * browser has. Every answer is checked by the test that runs it.
 */
import { Perdure, PerdureError } from "@perdure/sdk";

export interface Findings {
  readonly states: readonly string[];
  readonly output: string;
  readonly exitCode: number | null;
  readonly file: string;
  readonly fileMode: number;
  readonly large: number;
  readonly refusal: { readonly code: string; readonly hint: string | undefined };
  readonly unreachable: string;
  readonly cancelled: string;
  readonly part: string;
  readonly names: readonly string[];
  readonly changes: readonly string[];
  readonly terminal: string;
}

declare global {
  var findings: Promise<Findings> | undefined;
  var target: { readonly url: string; readonly apiKey: string } | undefined;
}

globalThis.findings = run();

async function run(): Promise<Findings> {
  const { url, apiKey } = globalThis.target ?? { url: "", apiKey: "" };
  const perdure = new Perdure({ url, apiKey });
  const states = [(await perdure.create({ name: "from-page" })).state];
  const { stdout, exitCode } = await perdure.run("from-page", ["echo", "hello"]);
  await perdure.writeFile("from-page", "/tmp/note", new Blob(["Grö", "ße"]), { mode: 0o600 });
  const note = await perdure.readFile("from-page", "/tmp/note");
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 48; i++) yield await Promise.resolve(new Uint8Array(65_536).fill(i));
  };
  await perdure.writeFile("from-page", "/tmp/large", pieces(), { size: 48 * 65_536 });
  const large = await (await perdure.readFile("from-page", "/tmp/large")).collect();
  const part = await perdure.readFile("from-page", "/tmp/note", { offset: 4 });
  await perdure.makeFolder("from-page", "/tmp/d/e", { parents: true });
  await perdure.movePath("from-page", "/tmp/note", "/tmp/d/note");
  const names: string[] = [];
  for await (const { name, kind } of perdure.listFolder("from-page", "/tmp/d")) {
    names.push(`${name} ${kind}`);
  }
  const changes: string[] = [];
  for await (const event of perdure.watch("from-page", "/tmp/d", { recursive: true })) {
    changes.push(event.type);
    if (event.type === "ready") await perdure.writeFile("from-page", "/tmp/d/new", "x");
    if (event.type === "created") break;
  }
  const terminal = await typedOn(perdure);
  states.push((await perdure.sleep("from-page")).state);
  states.push((await perdure.wake("from-page")).agent.state);
  const { code, hint } = await failure(perdure.show("nobody"));
  const nowhere = new Perdure({ url: "http://127.0.0.1:1" });
  const gaveUp = perdure.show("from-page", { signal: AbortSignal.abort() });
  const findings = {
    states,
    output: new TextDecoder().decode(stdout),
    exitCode,
    file: await note.text(),
    fileMode: note.facts.mode,
    large: large.reduce((sum, byte) => sum + byte, 0),
    refusal: { code, hint },
    unreachable: (await failure(nowhere.health())).code,
    cancelled: (await failure(gaveUp)).code,
    part: await part.text(),
    names: names.sort(),
    changes,
    terminal,
  };
  await perdure.remove("from-page");
  await perdure.close();
  return findings;
}

/** What a terminal shows to whoever types on it and makes it larger. */
async function typedOn(perdure: Perdure): Promise<string> {
  const script = "stty -echo; echo ready; read line; stty size; echo got $line";
  const terminal = await perdure.terminal("from-page", ["sh", "-c", script]);
  const decoder = new TextDecoder();
  let shown = "";
  for await (const event of terminal) {
    if (event.type === "output") shown += decoder.decode(event.bytes, { stream: true });
    if (shown === "ready\r\n") {
      await terminal.resize({ rows: 40, columns: 120 });
      await terminal.write("it\n");
    }
    if (event.type === "exit") return `${shown}exit ${event.exitCode}`;
  }
  return shown;
}

async function failure(work: Promise<unknown>): Promise<PerdureError> {
  return work.then(
    () => {
      throw new Error("It was not refused");
    },
    (error: unknown) => PerdureError.from(error),
  );
}
