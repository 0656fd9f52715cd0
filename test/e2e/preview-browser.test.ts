/** Preview hosts of a real VM in a real browser, over HTTP and over TLS of the daemon's own authority. */
import { once } from "node:events";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { PortView } from "@perdure/sdk";
import { Chromium } from "../browser/chromium.ts";
import type { Page } from "../browser/chromium.ts";
import { DaemonUnderTest, text } from "./daemon-under-test.ts";

const MINUTES = 60_000;
const under = new DaemonUnderTest();

/** A page, what it fetches, a stream of events and a WebSocket, on two ports. It keeps what it was asked. */
const PROGRAM = `
import base64, hashlib, http.server, threading
seen = open("/tmp/seen", "a", buffering=1)
class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, body, kind="text/plain", **headers):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["content-length"])).upper())
    def do_GET(self):
        seen.write(self.requestline + str(dict(self.headers)) + "\\n")
        if self.headers.get("upgrade") == "websocket": self.socket()
        elif self.path == "/cookies": self.answer(self.headers.get("cookie", "").encode())
        elif self.path == "/events": self.events()
        elif self.path.startswith("/page"):
            body = b"<!doctype html><title>Inside</title><script src=/script></script>"
            self.answer(body, "text/html", Set_Cookie="wide=1; Domain=localhost; Path=/")
        elif self.path == "/script": self.answer(b"globalThis.scripted = true", "text/javascript")
        else: self.answer(b"")
    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for turn in range(3):
            go.acquire()
            self.wfile.write(b"data: %d\\n\\n" % turn)
    def socket(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:  # echoes short masked frames
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8: break
            size = head[1] & 127
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            go.release()
            self.wfile.write(bytes([0x81, size]) + data)
            self.wfile.flush()
        self.close_connection = True
    def log_message(self, *args): pass
go = threading.Semaphore(0)
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
threading.Thread(target=Server(("127.0.0.1", 7001), Site).serve_forever, daemon=True).start()
site = Server(("127.0.0.1", 7000), Site)
print("ready", flush=True)
site.serve_forever()
`;

/** An event comes only after its word over the WebSocket: neither is kept back until the other ends. */
const CONVERSATION = `(async () => {
  const words = [], events = [];
  const source = new EventSource("/events");
  const socket = new WebSocket(location.href.replace(/^http/, "ws"));
  await new Promise((open, fail) => { socket.onopen = open; socket.onerror = () => fail(new Error("no socket")); });
  for (let turn = 0; turn < 3; turn++) {
    const [word, event] = [socket, source].map((from) =>
      new Promise((said) => { from.onmessage = ({ data }) => said(data); }));
    socket.send("word " + turn);
    words.push(await word);
    events.push(await event);
  }
  source.close();
  socket.close();
  return { words, events };
})()`;

const own = (view: PortView, path = "page"): string => `${view.url ?? ""}${path}`;
const withToken = (view: PortView): string => `${own(view)}?perdure_token=${view.token}`;

let port: number;
let [first, second]: [PortView?, PortView?] = [];
const views = (): [PortView, PortView] => {
  if (first === undefined || second === undefined) throw new Error("There is no agent");
  return [first, second];
};

async function learnViews(): Promise<void> {
  first = await under.client.setPort("a1", 7000);
  second = await under.client.setPort("a1", 7001);
}

beforeAll(async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  ({ port } = server.address() as AddressInfo);
  server.close();
  await once(server, "close");
  await under.start({ PERDURE_LISTEN: `localhost:${port}` });
  await under.client.create({ name: "a1" });
  await under.client.writeFile("a1", "/root/site.py", PROGRAM, { user: "root" });
  const site = await under.client.exec("a1", ["python3", "/root/site.py"], { user: "root" });
  for await (const event of site.output()) {
    if (event.type === "exit") throw new Error("The site ended");
    if (event.type === "output" && text(event.bytes).includes("ready")) break;
  }
  await learnViews();
}, 5 * MINUTES);
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

async function opened(page: Page, view: PortView): Promise<void> {
  await page.visit(withToken(view));
  expect(await page.evaluate("[document.title, globalThis.scripted, location.href]")).toEqual([
    ...["Inside", true],
    own(view),
  ]);
}

/** What holds in the clear and over TLS. */
async function works(browser: Chromium): Promise<void> {
  const [view, other] = views();
  const page = await browser.page();
  await opened(page, view);
  // The token is a cookie now, which no script sees, and the program neither.
  expect(await page.evaluate("document.cookie")).toBe("wide=1");
  expect(await page.evaluate(`fetch("/cookies").then((answer) => answer.text())`)).toBe("wide=1");
  const sent = `fetch("/", { method: "POST", body: "a".repeat(1e6) }).then((answer) => answer.text())`;
  expect(await page.evaluate(`${sent}.then((text) => [text.length, text[0]])`)).toEqual([1e6, "A"]);
  expect(await page.evaluate(CONVERSATION)).toEqual({
    words: ["word 0", "word 1", "word 2"],
    events: ["0", "1", "2"],
  });
  // Another port of the same agent is another origin: private to this page, with cookies of its own.
  const reach = `fetch(${JSON.stringify(own(other, "cookies"))}, { credentials: "include" })`;
  expect(await page.evaluate(`${reach}.then(() => "reached", ({ name }) => name)`)).toBe(
    "TypeError",
  );
  await page.visit(own(other));
  expect(await page.evaluate("document.body.innerText")).toContain("unauthenticated");
  await opened(page, other);
  expect(await page.evaluate("document.cookie = 'narrow=2'")).toBe("narrow=2");
  await page.visit(own(view));
  expect(await page.evaluate("document.cookie")).toBe("wide=1");
  expect(await page.evaluate(`${reach}.then(() => "reached", ({ name }) => name)`)).toBe(
    "TypeError",
  );
  const seen = await under.sh("a1", "cat /tmp/seen");
  expect(seen).toContain("GET /page");
  for (const secret of [view.token, other.token, "perdure_token"])
    expect(seen).not.toContain(secret);
}

describe("a browser on a preview host", () => {
  let browser: Chromium;
  beforeAll(async () => {
    browser = await Chromium.open();
  }, MINUTES);
  afterAll(() => browser.close());

  test(
    "has page, fetch, events and WebSocket with the token, and nothing of another port's",
    async () => {
      await works(browser);
    },
    3 * MINUTES,
  );

  test(
    "without the token sees that it is private, and with the wrong one",
    async () => {
      const [view] = views();
      const page = await browser.page();
      for (const address of [own(view), `${own(view)}?perdure_token=pt_0`]) {
        await page.visit(address);
        expect(await page.evaluate("document.body.innerText")).toContain("unauthenticated");
      }
    },
    MINUTES,
  );

  test(
    "wakes a sleeping agent by loading its page",
    async () => {
      const [view] = views();
      await under.client.sleep("a1");
      const before = await under.client.show("a1");
      const page = await browser.page();
      await opened(page, view);
      const { state, generation } = await under.client.show("a1");
      expect([state, generation]).toEqual(["awake", before.generation + 1]);
      expect(await page.evaluate(CONVERSATION)).toMatchObject({ events: ["0", "1", "2"] });
    },
    3 * MINUTES,
  );

  test(
    "is told of a sleep by the end of its WebSocket",
    async () => {
      const [view] = views();
      const page = await browser.page();
      await opened(page, view);
      await page.evaluate(`new Promise((open) => {
      globalThis.socket = new WebSocket(location.href.replace(/^http/, "ws"));
      globalThis.closed = new Promise((closed) => { socket.onclose = ({ wasClean }) => closed(wasClean); });
      socket.onopen = () => open(true);
    })`);
      await under.client.sleep("a1");
      expect(await page.evaluate("closed")).toBe(false);
    },
    3 * MINUTES,
  );
});

describe("a browser over TLS of the daemon's own authority", () => {
  beforeAll(async () => {
    await under.restart({ PERDURE_LISTEN: `localhost:${port}`, PERDURE_TLS: "generated" });
    await learnViews();
  }, 3 * MINUTES);

  test(
    "has all that one in the clear has, where it trusts that",
    async () => {
      const { authorityFile } = await under.client.health();
      expect(views()[0].url).toMatch(/^https:\/\/7000-[0-9a-z]{26}\.localhost:/);
      const browser = await Chromium.open(authorityFile);
      try {
        await works(browser);
      } finally {
        await browser.close();
      }
    },
    5 * MINUTES,
  );

  test(
    "goes nowhere where it does not",
    async () => {
      const browser = await Chromium.open();
      try {
        const page = await browser.page();
        await expect(page.visit(withToken(views()[0]))).rejects.toThrow(
          "ERR_CERT_AUTHORITY_INVALID",
        );
      } finally {
        await browser.close();
      }
    },
    2 * MINUTES,
  );
});
