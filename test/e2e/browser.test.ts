/** A page in a real browser, with an API key, to a daemon on TCP and its VMs. Needs Debian's `chromium`. */
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { bundle } from "../browser/bundle.ts";
import { expected } from "../browser/expected.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { freePort } from "./free-port.ts";

describe("the SDK in Chromium", () => {
  const under = new DaemonUnderTest();
  const profile = mkdtempSync(join(tmpdir(), "perdure-chromium-"));
  const page = createServer();
  let origin = "";
  let url = "";
  let script = "";

  beforeAll(async () => {
    script = await bundle(resolve("test/browser/program.ts"));
    page.listen(0, "127.0.0.1");
    await once(page, "listening");
    origin = `http://127.0.0.1:${(page.address() as AddressInfo).port}`;
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    await under.start({ PERDURE_LISTEN: String(port), PERDURE_CORS_ORIGIN: origin });
  });
  afterAll(async () => {
    page.close();
    expect(await under.end()).toEqual([]);
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  });

  test("does all that a page needs, and nothing once its key is revoked", async () => {
    const { token } = await under.client.keys.create({ name: "page", scope: "admin" });
    expect(await found(token)).toEqual({ findings: expected });
    await under.client.keys.revoke("page");
    expect(await found(token)).toMatchObject({ error: { code: "unauthenticated" } });
  });

  test("of an origin that was not named reaches nothing", async () => {
    const { token } = await under.client.keys.create({ name: "other", scope: "admin" });
    const elsewhere = origin.replace("127.0.0.1", "localhost");
    // The page is not told more than that its call may or may not have arrived.
    expect(await found(token, elsewhere)).toMatchObject({ error: { code: "interrupted" } });
    expect(await Array.fromAsync(under.client.list())).toEqual([]);
  });

  /** What the page tells that ran the program: its findings, or the error that it ended with. */
  async function found(apiKey: string, from = origin): Promise<unknown> {
    const told = Promise.withResolvers<unknown>();
    page.removeAllListeners("request").on("request", (request, response) => {
      response.setHeader("content-type", "text/html; charset=utf-8");
      if (request.method === "POST")
        void text(request).then((body) => told.resolve(JSON.parse(body)));
      response.end(request.url === "/" ? html({ url, apiKey }, script) : "");
    });
    const browser = openBrowser(profile, `${from}/`);
    const ended = once(browser, "exit").then(([code]) => {
      throw new Error(`Chromium ended early with ${String(code)}`);
    });
    try {
      return await Promise.race([told.promise, ended]);
    } finally {
      ended.catch(() => undefined);
      // All of its processes: they are a group.
      if (browser.pid !== undefined) process.kill(-browser.pid, "SIGKILL");
      await once(browser, "close");
    }
  }
});

function html(target: { readonly url: string; readonly apiKey: string }, script: string): string {
  const tell = `(body) => fetch("/", { method: "POST", body: JSON.stringify(body) })`;
  return `<!doctype html><title>Perdure</title>
<script>globalThis.target = ${JSON.stringify(target)};</script>
<script>${script.replaceAll("</script", "<\\/script")}</script>
<script>
  const tell = ${tell};
  findings.then(
    (findings) => tell({ findings }),
    ({ code, message }) => tell({ error: { code, message } }),
  );
</script>`;
}

function openBrowser(profile: string, address: string): ChildProcess {
  const flags = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    `--user-data-dir=${profile}`,
  ];
  return spawn("chromium", [...flags, address], { stdio: "ignore", detached: true });
}
