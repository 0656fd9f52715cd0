/**
 * Ports of real VMs through the life of their agents: sleep, restore, fork, crash and checkpoints, with visitors of the
 * preview host and of `perdure forward` in the middle of something.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { Agent as HttpAgent, createServer, request as httpRequest } from "node:http";
import type { IncomingMessage } from "node:http";
import { connect as connectTcp, type AddressInfo } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PerdureError, type AgentView, type PortView } from "@perdure/sdk";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";
import { crash } from "./host-view.ts";

const under = new DaemonUnderTest();
const PORT = 7100;
const ECHO_PORT = 7101;

/** Counts what it is asked over which connection, in its memory; streams without an end; keeps lines on the disk. */
const PROGRAM = `
import http.server, os, socket, threading, time
asked = 0
connections = 0
def note(name, how):
    with open("/tmp/" + name, "a") as file: file.write(how + "\\n")
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def setup(self):
        global connections
        connections += 1
        self.number = connections
        super().setup()
    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        global asked
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            try:
                while True: self.wfile.write(b"x" * 65536)
            except OSError as error: note("stream", type(error).__name__)
            self.close_connection = True
            return
        asked += 1
        self.answer("%d %d" % (asked, self.number))
    def do_POST(self):
        left = int(self.headers["content-length"])
        if self.path == "/sink":
            note("sink", "begun")
            try:
                while left:
                    data = self.rfile.read1(65536)
                    if not data: break
                    left -= len(data)
                how = "whole" if left == 0 else "end"
            except OSError as error: how = type(error).__name__
            note("sink", how)
            self.close_connection = True
            return
        body = self.rfile.read(left)
        with open("/home/user/lines", "ab") as file:
            file.write(body + b"\\n")
            file.flush()
            os.fsync(file.fileno())
        fd = os.open("/home/user", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.answer("kept")
    def log_message(self, *args): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
def echo(peer):
    try:
        while True:
            data = peer.recv(65536)
            if not data: break
            peer.sendall(data)
        note("echo", "end")
    except OSError as error: note("echo", type(error).__name__)
    peer.close()
def accept(server):
    while True:
        peer, _ = server.accept()
        threading.Thread(target=echo, args=(peer,), daemon=True).start()
threading.Thread(target=accept, args=(socket.create_server(("127.0.0.1", ${ECHO_PORT}), backlog=256),), daemon=True).start()
server = Server(("127.0.0.1", ${PORT}), Page)
print("ready", flush=True)
server.serve_forever()
`;

beforeAll(async () => {
  await under.start({ PERDURE_LISTEN: "127.0.0.1:0" });
});
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

async function serving(
  name: string,
  onCrash: AgentView["onCrash"] = "checkpoint",
): Promise<PortView> {
  await under.client.create({ name, onCrash });
  await begin(name);
  return under.client.setPort(name, PORT);
}

async function begin(name: string): Promise<void> {
  await under.client.writeFile(name, "/home/user/program.py", PROGRAM, { user: "user" });
  const program = await under.client.exec(name, ["python3", "/home/user/program.py"], {
    user: "user",
  });
  for await (const event of program.output()) {
    if (event.type === "exit") throw new Error("The program ended");
    if (event.type === "output" && text(event.bytes).includes("ready")) return;
  }
}

interface Asked {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string | number>>;
  readonly agent?: HttpAgent | false;
}

function beginRequest(
  view: PortView,
  path: string,
  { method = "GET", headers, agent }: Asked = {},
) {
  const { host, port } = new URL(view.url ?? "");
  return httpRequest({
    ...{ host: "127.0.0.1", port, path, method, agent: agent ?? false },
    headers: { host, "x-perdure-token": view.token, ...headers },
  });
}

async function ask(
  view: PortView,
  path = "/",
  asked: Asked = {},
  body?: string,
): Promise<{ status: number; body: string }> {
  const request = beginRequest(view, path, asked);
  request.end(body);
  const [answer] = (await once(request, "response")) as [IncomingMessage];
  return { status: answer.statusCode ?? 0, body: await textOf(answer) };
}

/** How often it was asked, and over which connection this time. */
async function count(view: PortView): Promise<{ asked: number; connection: number }> {
  const { status, body } = await ask(view);
  expect(status, body).toBe(200);
  const [asked = 0, connection = 0] = body.split(" ").map(Number);
  return { asked, connection };
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => null,
    (cause: unknown) => cause,
  );
  return error instanceof PerdureError ? error.code : `no error: ${String(error)}`;
}

interface Forward {
  readonly child: ChildProcess;
  readonly port: number;
  readonly said: () => string;
}

async function forward(agent: string, inside: number): Promise<Forward> {
  const child = spawn(
    process.execPath,
    ["packages/cli/bin/perdure.mjs", "forward", agent, `0:${inside}`, "--json"],
    { env: { ...process.env, PERDURE_HOME: under.home }, stdio: ["ignore", "pipe", "pipe"] },
  );
  let said = "";
  child.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  const { localPort } = JSON.parse(line.toString()) as { localPort: number };
  return { child, port: localPort, said: () => said };
}

async function ended({ child }: Forward): Promise<void> {
  child.kill("SIGINT");
  await once(child, "exit");
}

async function echoOf(port: number, said: string): Promise<string> {
  const socket = connectTcp({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.end(said);
  return textOf(socket);
}

describe("a sleep in the middle of something", () => {
  let view: PortView;
  beforeAll(async () => {
    view = await serving("middle");
  });
  afterAll(() => under.client.remove("middle"));

  test("C05 cuts bodies that stream, both ways, here and inside, and the next request is answered at once", async () => {
    const download = beginRequest(view, "/stream");
    download.end();
    const [answer] = (await once(download, "response")) as [IncomingMessage];
    const downloaded = once(answer.resume(), "error") as Promise<[NodeJS.ErrnoException]>;
    const upload = beginRequest(view, "/sink", {
      method: "POST",
      headers: { "content-length": 2 ** 40 },
    });
    const refused = Promise.race([
      once(upload, "error"),
      once(upload, "response").then(([late]) => [late as IncomingMessage]),
    ]);
    for (let i = 0; i < 16; i++) upload.write(Buffer.alloc(65_536));
    // A connection that is only made would keep it awake.
    await until("the upload to have begun", async () =>
      (await under.sh("middle", "cat /tmp/sink || true")).includes("begun"),
    );
    await under.client.sleep("middle");
    // Half of it is not taken for the whole.
    expect((await downloaded)[0].code).toBe("ECONNRESET");
    const [end] = await refused;
    if (!(end instanceof Error)) expect((end as IncomingMessage).statusCode).toBe(502);
    upload.destroy();
    const before = await under.client.show("middle");
    expect(before.state).toBe("asleep");
    await count(view);
    expect((await under.client.show("middle")).generation).toBe(before.generation + 1);
    for (const [name, how] of [
      ["stream", /^(ConnectionResetError|BrokenPipeError)$/],
      ["sink", /^begun\nConnectionResetError$/],
    ] as const) {
      await until(`the end of ${name} inside`, async () =>
        how.test(await under.sh("middle", `cat /tmp/${name} || true`)),
      );
    }
  });

  test("C05 resets a connection through forward on both sides, and the next one is passed on", async () => {
    const forwarding = await forward("middle", ECHO_PORT);
    const socket = connectTcp({ port: forwarding.port, host: "127.0.0.1" });
    socket.write("hello");
    const [back] = (await once(socket, "data")) as [Buffer];
    expect(back.toString()).toBe("hello");
    const broken = once(socket, "error") as Promise<[NodeJS.ErrnoException]>;
    await under.client.sleep("middle");
    expect((await broken)[0].code).toBe("ECONNRESET");
    expect(await echoOf(forwarding.port, "again")).toBe("again");
    await until("the reset inside", async () =>
      (await under.sh("middle", "cat /tmp/echo")).includes("ConnectionResetError"),
    );
    await until("what was said of it", () => forwarding.said().includes("interrupted"));
    await ended(forwarding);
  });

  test("C20 a hundred visitors at once wake it once, and all are answered", async () => {
    await under.client.sleep("middle");
    const before = await under.client.show("middle");
    const answers = await Promise.all(Array.from({ length: 100 }, () => ask(view)));
    expect(answers.map(({ status }) => status)).toEqual(new Array(100).fill(200));
    // Each was asked once.
    expect(new Set(answers.map(({ body }) => body.split(" ")[0])).size).toBe(100);
    const after = await under.client.show("middle");
    expect([after.state, after.generation]).toEqual(["awake", before.generation + 1]);
  });

  test("C32 who may not wake it is told so: a visitor, and a program through forward", async () => {
    await under.client.create({ name: "quiet", wakeOnTraffic: false });
    await begin("quiet");
    const quiet = await under.client.setPort("quiet", PORT);
    expect((await ask(quiet)).status).toBe(200);
    await under.client.sleep("quiet");
    const refused = await ask(quiet);
    expect([refused.status, JSON.parse(refused.body)]).toMatchObject([
      502,
      { code: "agent_state" },
    ]);
    expect((await under.client.show("quiet")).state).toBe("asleep");
    await under.client.remove("quiet");
    expect(await ask(quiet)).toMatchObject({ status: 401 });
  });
});

describe("another generation", () => {
  let view: PortView;
  beforeAll(async () => {
    view = await serving("again");
  });
  afterAll(() => under.client.remove("again"));

  test("C06 is visited over a connection of its own, after each restore of one checkpoint and in a fork", async () => {
    const first = await count(view);
    const second = await count(view);
    // Kept open between the two.
    expect(second).toEqual({ asked: first.asked + 1, connection: first.connection });
    await under.client.checkpoint("again", { name: "cut" });
    const third = await count(view);
    expect(third).toEqual({ asked: second.asked + 1, connection: first.connection });
    for (let round = 0; round < 2; round++) {
      await count(view);
      await under.client.restore("again", "cut");
      // What was asked after the cut was never asked.
      expect(await count(view)).toEqual({
        asked: second.asked + 1,
        connection: first.connection + 1,
      });
    }
    await under.client.fork("again", "forked", { checkpoint: "cut" });
    const own = await under.client.setPort("forked", PORT);
    expect(own.token).not.toBe(view.token);
    expect((await ask({ ...own, token: view.token })).status).toBe(401);
    expect(await count(own)).toEqual({ asked: second.asked + 1, connection: first.connection + 1 });
    expect(await count(view)).toMatchObject({ asked: second.asked + 2 });
    await under.client.remove("forked");
  });

  test("C09 live checkpoints fail no request of those that come all the time", async () => {
    const kept = new HttpAgent({ keepAlive: true });
    let [stop, failed, done] = [false, 0, 0];
    const visitors = Array.from({ length: 4 }, async () => {
      while (!stop) {
        const { status } = await ask(view, "/", { agent: kept });
        done++;
        if (status !== 200) failed++;
      }
    });
    for (let i = 0; i < 10; i++) await under.client.checkpoint("again", {});
    stop = true;
    await Promise.all(visitors);
    kept.destroy();
    expect(failed).toBe(0);
    expect(done).toBeGreaterThan(10);
  });
});

describe("C28 a request answered over a port, and the VM killed", () => {
  test.each(["checkpoint", "disk"] as const)(
    "onCrash %s keeps its promise to the visitor, and the other cut has a name",
    async (onCrash) => {
      const name = `crash-${onCrash}`;
      const view = await serving(name, onCrash);
      const { asked } = await count(view);
      await under.client.checkpoint(name, {});
      const wanted = { method: "POST", headers: { "content-length": 4 } };
      expect(await ask(view, "/keep", wanted, "line")).toEqual({ status: 200, body: "kept" });
      const before = await under.client.show(name);
      await crash(under, before.id);
      expect((await ask(view)).status).toBe(502);
      await until("the crash to be noticed", async () => {
        return (await under.client.show(name)).state === "failed";
      });
      // As any call: nobody who only looks at a page chooses between the two cuts.
      const refused = await ask(view);
      expect([refused.status, JSON.parse(refused.body)]).toMatchObject([
        ...[502, { code: "agent_failed" }],
      ]);
      await under.client.wake(name);
      const kept = `crash-${before.generation}-${onCrash === "disk" ? "memory" : "disk"}`;
      if (onCrash === "checkpoint") {
        // Memory and disk of the cut: the program goes on from there.
        expect(await count(view)).toMatchObject({ asked: asked + 1 });
        expect(await under.sh(name, "cat /home/user/lines || true")).toBe("");
      } else {
        const { status, body } = await ask(view);
        // The program is not started again by itself.
        expect([status, JSON.parse(body)]).toMatchObject([502, { code: "port_refused" }]);
        expect(await under.sh(name, "cat /home/user/lines")).toBe("line");
        await begin(name);
        expect(await count(view)).toMatchObject({ asked: 1 });
      }
      const after = await under.client.show(name);
      expect([after.state, after.generation]).toEqual(["awake", before.generation + 1]);
      const names = (await under.client.checkpoints(name)).map((each) => each.name);
      expect(names).toContain(kept);
      await under.client.remove(name);
    },
  );
});

describe("limits", () => {
  let view: PortView;
  beforeAll(async () => {
    view = await serving("many");
  });
  afterAll(() => under.client.remove("many"));

  test("forward passes as many as an agent takes, says so of the others, and goes on", async () => {
    const forwarding = await forward("many", ECHO_PORT);
    const sockets = Array.from({ length: 260 }, (_, at) => {
      const socket = connectTcp({ port: forwarding.port, host: "127.0.0.1" });
      socket.write(`number ${at}`);
      return socket;
    });
    const outcomes = await Promise.all(
      sockets.map((socket, at) =>
        Promise.race([
          once(socket, "data").then(([bytes]) => (bytes as Buffer).toString() === `number ${at}`),
          once(socket, "close").then(
            () => "closed",
            () => "closed",
          ),
        ]).catch(() => "closed"),
      ),
    );
    const passed = outcomes.filter((outcome) => outcome === true).length;
    expect(outcomes.filter((outcome) => outcome === false)).toEqual([]);
    expect(passed).toBeGreaterThan(150);
    expect(passed).toBeLessThan(260);
    await until("what was said of the others", () => forwarding.said().includes('"code":"'));
    for (const socket of sockets) socket.destroy();
    await until("room for more", async () => {
      return (await echoOf(forwarding.port, "again").catch(() => "")) === "again";
    });
    await ended(forwarding);
  });

  test("C64 a port is the agent's own: nothing of the host is reached by one", async () => {
    const server = createServer((_request, response) => response.end("the host"));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const daemonPort = Number(new URL(view.url ?? "").port);
    for (const each of [port, daemonPort]) {
      expect(await codeOf(under.client.connect("many", each))).toBe("port_refused");
      const { status, body } = await ask(await under.client.setPort("many", each));
      expect([status, JSON.parse(body)]).toMatchObject([502, { code: "port_refused" }]);
    }
    server.close();
  });
});
