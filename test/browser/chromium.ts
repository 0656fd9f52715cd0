/**
 * Headless Chromium, driven over its own protocol (DevTools): pages are opened, and expressions evaluated in them. Needs
 * Debian's `chromium`, and `libnss3-tools` where an authority has to be trusted.
 */
import { spawn, spawnSync } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { WebSocket } from "ws";

const flags = [
  ...["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"],
  ...["--disable-background-networking", "--disable-component-update"],
  "--remote-debugging-port=0",
];

interface Answer {
  readonly id?: number;
  readonly method?: string;
  readonly sessionId?: string;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

export class Chromium {
  readonly #process: ChildProcess;
  readonly #home: string;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  readonly #loads = new Map<string, () => void>();
  #last = 0;

  /** @param authorityFile of a certificate authority that it trusts */
  static async open(authorityFile: string | null = null): Promise<Chromium> {
    const home = mkdtempSync(join(tmpdir(), "perdure-chromium-"));
    if (authorityFile !== null) trust(home, authorityFile);
    const child = spawn("chromium", [...flags, `--user-data-dir=${join(home, "profile")}`], {
      ...{ env: { ...process.env, HOME: home }, detached: true },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    for await (const line of createInterface(child.stderr)) {
      said += `${line}\n`;
      const [, url] = /^DevTools listening on (ws:\S+)/.exec(line) ?? [];
      if (url === undefined) continue;
      child.stderr.resume();
      const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 0 });
      await once(socket, "open");
      return new Chromium(child, home, socket);
    }
    throw new Error(`Chromium ended early:\n${said}`);
  }

  private constructor(child: ChildProcess, home: string, socket: WebSocket) {
    [this.#process, this.#home, this.#socket] = [child, home, socket];
    socket.on("message", (data: Buffer) => {
      const answer = JSON.parse(data.toString()) as Answer;
      if (answer.id !== undefined) this.#waiting.get(answer.id)?.(answer);
      else if (answer.method === "Page.loadEventFired") this.#loads.get(answer.sessionId ?? "")?.();
    });
  }

  /** A page that shares cookies with no other. */
  async page(): Promise<Page> {
    const { browserContextId } = await this.call("Target.createBrowserContext");
    const wanted = { url: "about:blank", browserContextId };
    const { targetId } = await this.call("Target.createTarget", wanted);
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    await this.call("Page.enable", {}, sessionId as string);
    return new Page(this, sessionId as string);
  }

  async call(
    method: string,
    params: object = {},
    sessionId?: string,
  ): Promise<Readonly<Record<string, unknown>>> {
    const id = ++this.#last;
    const answered = new Promise<Answer>((resolve) => this.#waiting.set(id, resolve));
    this.#socket.send(
      JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }),
    );
    const { result, error } = await answered;
    this.#waiting.delete(id);
    if (error !== undefined) throw new Error(`${method}: ${error.message}`);
    return result ?? {};
  }

  loaded(sessionId: string): Promise<void> {
    return new Promise((resolve) => this.#loads.set(sessionId, resolve));
  }

  async close(): Promise<void> {
    const closed = once(this.#process, "close");
    // All of its processes: they are a group.
    if (this.#process.pid !== undefined) process.kill(-this.#process.pid, "SIGKILL");
    await closed;
    this.#socket.terminate();
    rmSync(this.#home, { recursive: true, force: true, maxRetries: 5 });
  }
}

export class Page {
  readonly #browser: Chromium;
  readonly #session: string;

  constructor(browser: Chromium, session: string) {
    [this.#browser, this.#session] = [browser, session];
  }

  /** Resolves once it is loaded. @throws with the browser's words where nothing was */
  async visit(url: string): Promise<void> {
    const loaded = this.#browser.loaded(this.#session);
    const { errorText } = await this.#browser.call("Page.navigate", { url }, this.#session);
    if (errorText !== undefined) throw new Error(errorText as string);
    await loaded;
  }

  /** What an expression comes to, whose value is one of JSON or a promise of that. */
  async evaluate(expression: string): Promise<unknown> {
    const wanted = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.#browser.call(
      "Runtime.evaluate",
      wanted,
      this.#session,
    );
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return (result as { value?: unknown }).value;
  }
}

function trust(home: string, authorityFile: string): void {
  const folder = join(home, ".pki/nssdb");
  mkdirSync(folder, { recursive: true });
  for (const args of [
    ["-N", "--empty-password"],
    ["-A", "-t", "C,,", "-n", "perdure", "-i", authorityFile],
  ]) {
    const { status, stderr } = spawnSync("certutil", ["-d", `sql:${folder}`, ...args], {
      encoding: "utf8",
    });
    if (status !== 0) throw new Error(`certutil: ${stderr}`);
  }
}
