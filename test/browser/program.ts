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
  await perdure.writeFile("from-page", "/note", new Blob(["Grö", "ße"]), { mode: 0o600 });
  const note = await perdure.readFile("from-page", "/note");
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 48; i++) yield await Promise.resolve(new Uint8Array(65_536).fill(i));
  };
  await perdure.writeFile("from-page", "/large", pieces(), { size: 48 * 65_536 });
  const large = await (await perdure.readFile("from-page", "/large")).collect();
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
  };
  await perdure.remove("from-page");
  await perdure.close();
  return findings;
}

async function failure(work: Promise<unknown>): Promise<PerdureError> {
  return work.then(
    () => {
      throw new Error("It was not refused");
    },
    (error: unknown) => PerdureError.from(error),
  );
}
