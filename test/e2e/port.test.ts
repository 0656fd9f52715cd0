/**
 * Ports of real VMs, reached from outside: through the SDK, `perdure forward`, preview hosts with curl and a WebSocket.
 * Programs inside are Python's own servers.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect as connectTcp } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { PerdureError, type PortConnection, type PortView } from "@perdure/sdk";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";

const under = new DaemonUnderTest();
const MIB = 1024 * 1024;
/** Echo, a server that never answers, one that resets, one that says what became of its connections, a WebSocket. */
const SERVERS = `
import base64, hashlib, http.server, os, socket, struct, threading

def serve(port, handle):
    server = socket.create_server(("127.0.0.1", port), backlog=128)
    def loop():
        while True:
            peer, _ = server.accept()
            threading.Thread(target=handle, args=(peer,), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()

def echo(peer):
    while True:
        data = peer.recv(65536)
        if not data: break
        peer.sendall(data)
    peer.close()

def late(peer):  # answers when the other side has ended
    size = 0
    while True:
        data = peer.recv(65536)
        if not data: break
        size += len(data)
    peer.sendall(b"%d bytes" % size)
    peer.close()

def silent(peer):
    while peer.recv(65536): pass

def reset(peer):
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()

def witness(peer):
    try:
        peer.sendall(b"ready")
        while peer.recv(65536): pass
        how = "end"
    except OSError as error:
        how = type(error).__name__
    with open("/tmp/witness", "a") as file: file.write(how + "\\n")

def flood(peer):
    block = bytes(65536)
    try:
        while True: peer.sendall(block)
    except OSError: pass

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("upgrade") == "websocket":
            return self.socket()
        body = ("%s %s %s" % (self.command, self.path, dict(self.headers))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        digest = hashlib.sha256()
        left = int(self.headers["content-length"])
        while left:
            data = self.rfile.read(min(left, 65536))
            digest.update(data)
            left -= len(data)
        body = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
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
            self.wfile.write(bytes([0x81, size]) + data)
            self.wfile.flush()
        self.close_connection = True
    def log_message(self, *args): pass

class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

for port, handle in [(7001, echo), (7002, late), (7003, silent), (7004, reset), (7005, witness), (7006, flood)]:
    serve(port, handle)
threading.Thread(target=Server(("127.0.0.1", 7000), Page).serve_forever, daemon=True).start()
class Six(Server):
    address_family = socket.AF_INET6
print("ready", flush=True)
Six(("::1", 7007), Page).serve_forever()
`;

let page: PortView;

beforeAll(async () => {
  await under.start({ PERDURE_LISTEN: "127.0.0.1:0" });
  await under.client.create({ name: "a1" });
  const options = { user: "root" };
  await under.client.writeFile("a1", "/root/servers.py", SERVERS, options);
  const servers = await under.client.exec("a1", ["python3", "/root/servers.py"], options);
  for await (const event of servers.output()) {
    if (event.type === "exit") throw new Error("The servers ended");
    if (event.type === "output" && text(event.bytes).includes("ready")) break;
  }
  page = await under.client.setPort("a1", 7000);
});
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

async function all(connection: AsyncIterable<Uint8Array>): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(connection));
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (cause: unknown) => cause,
  );
  return error instanceof PerdureError ? error.code : `no error: ${String(error)}`;
}

const ready = async (connection: PortConnection): Promise<AsyncIterator<Uint8Array>> => {
  const pieces = connection[Symbol.asyncIterator]();
  const { value } = await pieces.next();
  expect(text(value ?? "")).toBe("ready");
  return pieces;
};

/** curl resolves names below localhost by itself. */
async function curl(...args: string[]): Promise<{ status: number; body: string }> {
  const child = spawn("curl", ["-s", "-m", "60", "-w", "\n%{http_code}", ...args]);
  const [out] = await Promise.all([textOf(child.stdout), once(child, "close")]);
  const at = out.lastIndexOf("\n");
  return { status: Number(out.slice(at + 1)), body: out.slice(0, at) };
}

describe("raw connections", () => {
  test("megabytes go both ways at once and keep their digest", async () => {
    const connection = await under.client.connect("a1", 7001);
    const sent = createHash("sha256");
    const feed = async (): Promise<void> => {
      for (let i = 0; i < 8 * 16; i++) {
        const piece = crypto.getRandomValues(new Uint8Array(65_536));
        sent.update(piece);
        await connection.write(piece);
      }
      await connection.end();
    };
    const [back] = await Promise.all([all(connection), feed()]);
    expect(back.length).toBe(8 * MIB);
    expect(createHash("sha256").update(back).digest("hex")).toBe(sent.digest("hex"));
  });

  test("a program that answers at the end of its input is answered to", async () => {
    const connection = await under.client.connect("a1", 7002);
    await connection.write(Buffer.alloc(300_000));
    await connection.end();
    expect(text(await all(connection))).toBe("300000 bytes");
  });

  test("IPv6 is tried, nobody listening is refused, a reset is told", async () => {
    const six = await under.client.connect("a1", 7007);
    await six.write("GET / HTTP/1.0\r\n\r\n");
    expect(text(await all(six))).toContain("GET /");
    expect(await codeOf(under.client.connect("a1", 7999))).toBe("port_refused");
    // At once, or after the connection stands: that is a race inside.
    const broken = under.client.connect("a1", 7004).then(all);
    expect(await codeOf(broken)).toBe("connection_reset");
  });

  test("a client that goes is a reset inside, one that ends is an end", async () => {
    await under.sh("a1", "rm -f /tmp/witness");
    const going = await under.client.connect("a1", 7005);
    await ready(going);
    going.close();
    await until("the reset", async () =>
      (await under.sh("a1", "cat /tmp/witness || true")).includes("ConnectionResetError"),
    );
    const ending = await under.client.connect("a1", 7005);
    await ready(ending);
    await ending.end();
    await until("the end", async () => (await under.sh("a1", "cat /tmp/witness")).endsWith("end"));
  });

  test("a hundred at once, and who does not read holds up nobody else", async () => {
    const slow = await under.client.connect("a1", 7006);
    const texts = await Promise.all(
      Array.from({ length: 100 }, async (_, i) => {
        const connection = await under.client.connect("a1", 7001);
        await connection.write(`number ${i}`);
        await connection.end();
        return text(await all(connection));
      }),
    );
    expect(texts).toEqual(Array.from({ length: 100 }, (_, i) => `number ${i}`));
    slow.close();
  });

  test("a checkpoint leaves it as it is, a restore ends it", async () => {
    const connection = await under.client.connect("a1", 7001);
    const pieces = connection[Symbol.asyncIterator]();
    const echoed = async (said: string): Promise<string> => {
      await connection.write(said);
      return text((await pieces.next()).value ?? "");
    };
    expect(await echoed("before")).toBe("before");
    await under.client.checkpoint("a1", { name: "cut" });
    expect(await echoed("after")).toBe("after");
    const reading = codeOf(Promise.resolve(pieces.next()));
    await under.client.restore("a1", "cut");
    expect(await reading).toBe("interrupted");
    const next = await under.client.connect("a1", 7001);
    await next.write("restored");
    await next.end();
    expect(text(await all(next))).toBe("restored");
    await under.client.drop("a1", "cut");
  });

  test("a daemon that is killed ends it here and inside", async () => {
    await under.sh("a1", "rm -f /tmp/witness");
    const connection = await under.client.connect("a1", 7005);
    const pieces = await ready(connection);
    const reading = codeOf(Promise.resolve(pieces.next()));
    await under.restart({ PERDURE_LISTEN: "127.0.0.1:0" });
    expect(await reading).toBe("interrupted");
    await until("the reset inside", async () =>
      (await under.sh("a1", "cat /tmp/witness || true")).includes("ConnectionResetError"),
    );
    page = await under.client.setPort("a1", 7000);
  });

  test("a sleep ends it here as interrupted and inside as a reset; connecting wakes", async () => {
    await under.sh("a1", "rm -f /tmp/witness");
    const connection = await under.client.connect("a1", 7005);
    const pieces = await ready(connection);
    const reading = codeOf(Promise.resolve(pieces.next()));
    await under.client.sleep("a1");
    expect(await reading).toBe("interrupted");
    expect(await codeOf(under.client.connect("a1", 7001, { wakes: false }))).toBe("agent_state");
    const before = await under.client.show("a1");
    expect(before.state).toBe("asleep");
    const again = await under.client.connect("a1", 7001);
    await again.write("awake");
    await again.end();
    expect(text(await all(again))).toBe("awake");
    expect((await under.client.show("a1")).generation).toBe(before.generation + 1);
    await until("the reset inside", async () =>
      (await under.sh("a1", "cat /tmp/witness || true")).includes("ConnectionResetError"),
    );
  });
});

describe("preview hosts", () => {
  const token = (): string => `x-perdure-token: ${page.token}`;

  test("curl gets a page, with nothing of the token inside", async () => {
    expect(page.url).toMatch(/^http:\/\/7000-[0-9a-z]{26}\.localhost:\d+\/$/);
    const { status, body } = await curl("-H", token(), `${page.url ?? ""}a/b?c=d`);
    expect(status).toBe(200);
    expect(body).toContain("GET /a/b?c=d");
    expect(body).not.toContain(page.token);
    expect((await curl(page.url ?? "")).status).toBe(401);
    const file = `${under.home}/cookies`;
    const visited = await curl(
      "-L",
      "-c",
      file,
      "-b",
      file,
      `${page.url ?? ""}x?perdure_token=${page.token}`,
    );
    expect(visited).toMatchObject({ status: 200 });
    expect(visited.body).toContain("GET /x ");
    expect(visited.body).not.toContain(page.token);
  });

  test("an upload of megabytes keeps its digest", async () => {
    const bytes = Buffer.from(crypto.getRandomValues(new Uint8Array(65_536)));
    const whole = Buffer.concat(Array.from({ length: 64 }, () => bytes));
    const url = new URL(page.url ?? "");
    const request = httpRequest({
      ...{ host: "127.0.0.1", port: url.port, path: "/", method: "POST" },
      headers: { host: url.host, "x-perdure-token": page.token, "content-length": whole.length },
    });
    request.end(whole);
    const [answer] = (await once(request, "response")) as [IncomingMessage];
    expect(await textOf(answer)).toBe(createHash("sha256").update(whole).digest("hex"));
  });

  test("a program that never answers holds up nobody, and a visitor that goes is gone inside", async () => {
    const { url, token: own } = await under.client.setPort("a1", 7003);
    const waiting = Array.from({ length: 20 }, () =>
      spawn("curl", ["-s", "-H", `x-perdure-token: ${own}`, url ?? ""]),
    );
    const open = (): Promise<string> =>
      under.sh("a1", "grep -c ':1B5B .* 01 ' /proc/net/tcp || true");
    await until("all of them to be open", async () => Number(await open()) === 20);
    expect((await curl("-H", token(), page.url ?? "")).status).toBe(200);
    for (const child of waiting) child.kill("SIGKILL");
    await until("all of them to be gone", async () => Number(await open()) === 0);
  });

  test.each([
    ["a path that leads up", "/../../etc/passwd", []],
    ["a header of its own connection", "/", ["-H", "connection: x-y, host", "-H", "x-y: 1"]],
    ["two hosts", "/", ["-H", "host: localhost"]],
    ["a forged origin of the request", "/", ["-H", "x-forwarded-for: 10.0.0.1"]],
  ])("%s does no harm", async (_what, path, more) => {
    const { status, body } = await curl(
      "--path-as-is",
      ...more,
      "-H",
      token(),
      (page.url ?? "").replace(/\/$/, path),
    );
    expect([200, 401, 404]).toContain(status);
    expect(body).not.toContain("10.0.0.1");
    expect(body).not.toContain("x-y");
    expect(body).not.toContain(page.token);
  });

  test("a WebSocket echoes, and ends when the agent sleeps", async () => {
    const url = new URL(page.url ?? "");
    const socket = new WebSocket(`ws://127.0.0.1:${url.port}/`, {
      headers: { host: url.host, "x-perdure-token": page.token },
    });
    await once(socket, "open");
    socket.send("hello");
    const [message] = (await once(socket, "message")) as [Buffer];
    expect(message.toString()).toBe("hello");
    const closed = once(socket, "close");
    await under.client.sleep("a1");
    await closed;
  });

  test("traffic wakes the agent and waits for it", async () => {
    await under.client.sleep("a1");
    const { status, body } = await curl("-H", token(), page.url ?? "");
    expect([status, body.startsWith("GET / ")]).toEqual([200, true]);
    expect((await under.client.show("a1")).state).toBe("awake");
  });

  test("nobody listening is answered with 502 and a code", async () => {
    const { url, token: other } = await under.client.setPort("a1", 7999);
    const refused = await curl("-H", `x-perdure-token: ${other}`, url ?? "");
    expect(refused.status).toBe(502);
    expect(JSON.parse(refused.body)).toMatchObject({ code: "port_refused" });
  });

  test("a public port asks for nothing, until it is private again", async () => {
    const opened = await under.perdure(["port", "a1", "7000", "--public", "--json"]);
    expect(opened.code, opened.stderr).toBe(0);
    expect((await curl(page.url ?? "")).status).toBe(200);
    expect((await under.client.show("a1")).publicPorts).toEqual([7000]);
    expect((await under.perdure(["show", "a1"])).stdout).toMatch(/^public +port 7000$/m);
    expect((await under.perdure(["port", "a1", "7000", "--private"])).code).toBe(0);
    expect((await curl(page.url ?? "")).status).toBe(401);
  });
});

describe("perdure forward", () => {
  let child: ChildProcess;
  let port: number;

  beforeAll(async () => {
    child = spawn(
      process.execPath,
      ["packages/cli/bin/perdure.mjs", "forward", "a1", "0:7001", "--json"],
      {
        env: { ...process.env, PERDURE_HOME: under.home },
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    const stdout = child.stdout;
    if (stdout === null) throw new Error("There is no stdout");
    const [line] = (await once(stdout, "data")) as [Buffer];
    ({ localPort: port } = JSON.parse(line.toString().split("\n")[0] ?? "") as {
      localPort: number;
    });
  });
  afterAll(async () => {
    child.kill("SIGINT");
    const [code] = (await once(child, "exit")) as [number];
    expect(code).toBe(130);
  });

  const echo = async (said: string): Promise<string> => {
    const socket = connectTcp({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.end(said);
    return textOf(socket);
  };

  test("passes connections, also after a sleep and a restart of the daemon", async () => {
    expect(await echo("one")).toBe("one");
    await under.client.sleep("a1");
    expect(await echo("two")).toBe("two");
    await under.restart({ PERDURE_LISTEN: "127.0.0.1:0" });
    expect(await echo("three")).toBe("three");
  });
});
