/**
 * The way out of real VMs. Servers on this host are allowed by explicit rules; what they see is the witness. Programs
 * inside know nothing of a proxy.
 */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { writeFileSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { ConnectionView, EgressRule } from "@perdure/sdk";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";

const under = new DaemonUnderTest();
const agent = "a1";
const root = { user: "root" };

/** What programs inside do: each command prints one line, an errno by its name where it fails. */
const INSIDE = `
import errno, os, hashlib, socket, struct, sys, threading, time

def name_of(error):
    if isinstance(error, socket.gaierror): return "gaierror"
    if isinstance(error, socket.timeout): return "timeout"
    if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN): return "reset"
    return errno.errorcode.get(error.errno, str(error))

def say(host, port, words):
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(words.encode())
        peer.shutdown(socket.SHUT_WR)
        heard = b""
        while True:
            piece = peer.recv(65536)
            if not piece: return heard.decode()
            heard += piece

def datagram(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.sendto(b"x", (host, int(port)))
        return "sent"

def ping(host):
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as peer:
        peer.sendto(struct.pack("!BBHHH", 8, 0, 0xf7ff, 0, 0), (host, 0))
        return "sent"

def resolve(name):
    return " ".join(sorted({entry[4][0] for entry in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)}))

def knock(host, port, path):
    """For ever: connects, says which generation it is, and counts what it heard."""
    heard = failed = 0
    while True:
        try:
            with open("/run/perdure/generation") as file: generation = file.read().strip()
            if say(host, port, "generation " + generation): heard += 1
        except (OSError, ValueError): failed += 1
        with open(path + ".new", "w") as file: file.write("%d %d" % (heard, failed))
        os.replace(path + ".new", path)
        time.sleep(0.005)

def keep(host, port, path):
    """One connection, held; how it ended is written down."""
    peer = socket.create_connection((host, int(port)))
    peer.sendall(b"held")
    peer.recv(4)
    print("held", flush=True)
    try:
        how = "end" if peer.recv(1) == b"" else "bytes"
    except OSError as error: how = name_of(error)
    with open(path, "w") as file: file.write(how)

def load(host, port, size):
    digest = hashlib.sha256()
    left = int(size)
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(b"%d\\n" % left)
        while left:
            piece = peer.recv(1 << 18)
            if not piece: break
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()

def many(host, port, count):
    """So many at once, each heard to the end; what came of them."""
    results = []
    def one(number):
        words = "hello %d" % number
        try: results.append("heard" if say(host, port, words) == words else "wrong")
        except OSError as error: results.append(name_of(error))
    threads = [threading.Thread(target=one, args=(number,)) for number in range(int(count))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return " ".join("%s:%d" % (what, results.count(what)) for what in sorted(set(results)))

def http(method, url):
    import urllib.request, urllib.error
    request = urllib.request.Request(url, method=method, data=b"x" if method == "POST" else None)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer: return answer.read().decode()
    except urllib.error.URLError as error: return name_of(error.reason)

command, *arguments = sys.argv[1:]
try: print(globals()[command](*arguments))
except OSError as error: print(name_of(error))
`;

const HOST = "host.perdure.internal";
/** One whose address changes. A hosts file of the daemon's own takes root. */
const MOVING = "moving.test";
const isRoot = process.getuid?.() === 0;

interface Witness {
  readonly port: number;
  /** What connections said so far. */
  readonly said: string[];
  readonly sockets: Set<Socket>;
  accepted: number;
}

const servers: Server[] = [];

async function listen(server: Server): Promise<number> {
  servers.push(server.listen(0, "0.0.0.0"));
  await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/** Says back what it hears. */
async function echo(): Promise<Witness> {
  const witness = { port: 0, said: [] as string[], sockets: new Set<Socket>(), accepted: 0 };
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    witness.accepted++;
    witness.sockets.add(socket);
    socket.on("close", () => witness.sockets.delete(socket));
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => witness.said.push(bytes.toString()));
    socket.pipe(socket);
  });
  witness.port = await listen(server);
  return witness;
}

let one: Witness;
let two: Witness;
/** Answers with the method; `/elsewhere` leads to the port of `two`. */
let httpPort: number;
let requests: string[] = [];

const insideOf = (name: string, ...words: (string | number)[]): Promise<string> =>
  under.sh(name, `python3 /root/inside.py ${words.map((word) => `'${word}'`).join(" ")}`);
const inside = (...words: (string | number)[]) => insideOf(agent, ...words);
const set = (rules: EgressRule[], otherwise: "allow" | "deny" = "deny") =>
  under.client.setEgress(agent, { rules, otherwise });
const toHost = (...ports: number[]): EgressRule => ({
  action: "allow",
  to: HOST,
  private: true,
  ...(ports.length === 0 ? {} : { ports }),
});
async function newest(): Promise<ConnectionView | undefined> {
  return (await under.client.connections(agent)).at(-1);
}

/** Starts a command inside that goes on. */
async function begin(name: string, ...words: (string | number)[]): Promise<void> {
  const argv = ["python3", "/root/inside.py", ...words.map(String)];
  await under.client.exec(name, argv, root);
}

/** What `knock` counted: heard, failed. */
async function counts(name: string): Promise<[number, number]> {
  const [heard = "0", failed = "0"] = (await under.sh(name, "cat /root/knocks")).split(" ");
  return [Number(heard), Number(failed)];
}

/** Waits until it has tried so often since now, in vain. */
async function triedInVain(name: string, times = 20): Promise<void> {
  const [, before] = await counts(name);
  await until("tries inside", async () => (await counts(name))[1] >= before + times);
}

beforeAll(async () => {
  [one, two] = await Promise.all([echo(), echo()]);
  httpPort = await listen(
    createHttpServer((request, response) => {
      requests.push(`${String(request.method)} ${String(request.url)}`);
      if (request.url === "/elsewhere") {
        response.writeHead(302, { location: `http://${HOST}:${two.port}/` });
      }
      request.resume().on("end", () => response.end(`it was ${String(request.method)}`));
    }),
  );
  const settings = { PERDURE_LISTEN: "127.0.0.1:0" };
  await (isRoot
    ? under.start(settings, { hosts: { [MOVING]: "127.0.0.2" } })
    : under.start(settings));
  await under.client.create({ name: agent });
  await under.client.writeFile(agent, "/root/inside.py", INSIDE, root);
});
beforeEach(async () => {
  await set([]);
  requests = [];
  for (const witness of [one, two]) {
    witness.accepted = 0;
    witness.said.length = 0;
  }
});
afterAll(async () => {
  for (const server of servers) server.close();
  for (const witness of [one, two]) for (const socket of witness.sockets) socket.destroy();
  expect(await under.end()).toEqual([]);
});

test("nothing gets out of an agent that nothing was said of, and it is told so at once", async () => {
  expect(await under.client.egress(agent)).toMatchObject({ rules: [], wayOut: "open" });
  expect(await inside("say", "127.0.0.2", one.port, "x")).toBe("ECONNREFUSED");
  for (const host of [HOST, "nobody.example", "93.184.216.34"]) {
    expect(await inside("say", host, one.port, "x")).toBe("reset");
  }
  expect(one.accepted).toBe(0);
  expect(await newest()).toMatchObject({
    name: null,
    address: "93.184.216.34",
    outcome: "denied",
    unmediated: false,
    why: "No rule allows it",
  });
});

test("UDP and ICMP are refused at once, and names have addresses that lead nowhere by themselves", async () => {
  await set([], "allow");
  expect(await inside("datagram", "93.184.216.34", 53)).toBe("EACCES");
  expect(await inside("ping", "93.184.216.34")).toBe("EACCES");
  const address = await inside("resolve", "nobody.invalid");
  expect(address).toMatch(/^198\.(18|19)\.\d+\.\d+$/);
  expect(await inside("resolve", "nobody.invalid")).toBe(address);
  expect(await inside("resolve", "localhost")).toContain("127.0.0.1");
  expect(await inside("say", "nobody.invalid", 80, "x")).toBe("reset");
  expect(await newest()).toMatchObject({
    name: "nobody.invalid",
    address: null,
    outcome: "failed",
    unmediated: false,
  });
  // One that no name stands for.
  expect(await inside("say", "198.19.255.254", 80, "x")).toBe("reset");
});

test("what a rule allows by name is carried, and recorded with what it carried", async () => {
  await set([toHost(one.port)]);
  expect(await inside("say", HOST, one.port, "hello out there")).toBe("hello out there");
  expect(one.said).toEqual(["hello out there"]);
  expect(await inside("say", HOST, two.port, "x")).toBe("reset");
  expect(two.accepted).toBe(0);
  const { generation } = await under.client.show(agent);
  expect((await under.client.connections(agent)).slice(-2)).toMatchObject([
    {
      generation,
      name: HOST,
      address: "127.0.0.1",
      port: one.port,
      outcome: "carried",
      rule: 0,
      unmediated: true,
      outBytes: 15,
      inBytes: 15,
      why: null,
    },
    { port: two.port, outcome: "denied", rule: null },
  ]);
});

test("C64 what is not public, metadata and the daemon itself are not reached by a rule that does not mean them", async () => {
  const { url } = await under.client.health();
  const own = Number(new URL(url ?? "http://none:1").port);
  await set(
    [
      { action: "allow", to: "*" },
      { action: "allow", to: HOST },
    ],
    "allow",
  );
  expect(await inside("say", HOST, one.port, "x")).toBe("reset");
  expect(await inside("say", "169.254.169.254", 80, "x")).toBe("reset");
  expect((await newest())?.why).toContain("no public address");
  for (const host of [...hostAddresses(), "10.0.0.1"]) {
    expect(await inside("say", host, one.port, "x")).toBe("reset");
  }
  expect(one.accepted).toBe(0);
  await set([toHost(), { action: "allow", to: "0.0.0.0/0" }]);
  expect(await inside("say", HOST, one.port, "x")).toBe("x");
  expect(await inside("say", HOST, own, "GET /v1/health HTTP/1.0\r\n\r\n")).toBe("reset");
  expect(await newest()).toMatchObject({ outcome: "denied", why: "It leads to the daemon itself" });
});

test("a name that leads elsewhere later is decided on anew, for each connection", async (context) => {
  if (!isRoot) return context.skip("A hosts file of the daemon's own takes root");
  await set([{ action: "allow", to: "127.0.0.2", ports: [one.port] }]);
  expect(await inside("say", MOVING, one.port, "x")).toBe("x");
  // In place: it is mounted over the host's.
  writeFileSync(join(under.home, "hosts"), `127.0.0.1 ${MOVING}\n`);
  expect(await inside("say", MOVING, one.port, "x")).toBe("reset");
  expect((await under.client.connections(agent)).slice(-2)).toMatchObject([
    { name: MOVING, address: "127.0.0.2", outcome: "carried" },
    { name: MOVING, address: "127.0.0.1", outcome: "denied" },
  ]);
  expect(one.accepted).toBe(1);
});

test("what a rule allows by address is carried", async (context) => {
  const [address] = hostAddresses();
  if (address === undefined) return context.skip("This host has no address but loopback");
  await set([{ action: "allow", to: `${address}/32`, ports: [one.port] }]);
  expect(await inside("say", address, one.port, "x")).toBe("x");
  expect(await newest()).toMatchObject({ name: null, address, outcome: "carried" });
});

test("a rule about methods lets those pass that it names, and a redirect leads nowhere else", async () => {
  await set([{ ...toHost(httpPort), methods: ["GET"] }]);
  expect(await inside("http", "GET", `http://${HOST}:${httpPort}/`)).toBe("it was GET");
  expect(await newest()).toMatchObject({ method: "GET", outcome: "carried" });
  expect(await inside("http", "POST", `http://${HOST}:${httpPort}/`)).toBe("reset");
  expect(await inside("say", HOST, httpPort, "no HTTP")).toBe("reset");
  expect(requests).toEqual(["GET /"]);
  await set([toHost(httpPort)]);
  expect(await inside("http", "GET", `http://${HOST}:${httpPort}/elsewhere`)).toBe("reset");
  expect(two.accepted).toBe(0);
});

test("a change breaks off what is open at once", async () => {
  await set([toHost(one.port)]);
  await begin(agent, "keep", HOST, one.port, "/root/kept");
  await until("the connection", () => one.said.includes("held"));
  expect((await under.client.egress(agent)).connections).toBe(1);
  await set([toHost(two.port)]);
  await until("its end", () => one.sockets.size === 0);
  expect(
    await under.sh(agent, "until test -s /root/kept; do sleep 0.01; done; cat /root/kept"),
  ).toBe("reset");
  expect(await newest()).toMatchObject({ outcome: "denied", outBytes: 4, unmediated: true });
});

test("200 connections at once are carried", async () => {
  await set([toHost(one.port)]);
  expect(await inside("many", HOST, one.port, 200)).toBe("heard:200");
  expect(one.accepted).toBe(200);
});

test("one that is open at a sleep ends then for the server, and after the wake for the program", async () => {
  await set([toHost(one.port)]);
  await under.sh(agent, "rm -f /root/kept");
  await begin(agent, "keep", HOST, one.port, "/root/kept");
  await until("the connection", () => one.said.includes("held"));
  await under.client.sleep(agent);
  await until("its end", () => one.sockets.size === 0);
  expect(await newest()).toMatchObject({ outcome: "carried", unmediated: true });
  expect((await newest())?.why).not.toBeNull();
  await under.client.wake(agent);
  expect(
    await under.sh(agent, "until test -s /root/kept; do sleep 0.01; done; cat /root/kept"),
  ).toBe("reset");
  expect(one.accepted).toBe(1);
});

test("I4 on no route does anything get out that the policy of now denies", async () => {
  await set([toHost(one.port)]);
  await begin(agent, "knock", HOST, one.port, "/root/knocks");
  await until("knocks", () => one.said.length >= 3);
  const { id } = await under.client.checkpoint(agent, { name: "knocking" });
  const silence = async (name = agent): Promise<void> => {
    await triedInVain(name);
    expect(one.said).toEqual([]);
  };
  await under.client.sleep(agent);
  await set([]);
  await until("the rest", () => one.sockets.size === 0);
  one.said.length = 0;
  await under.client.wake(agent);
  await silence();
  await under.client.restore(agent, id);
  await silence();
  const restored = (await under.client.report(agent))?.checks.find(
    ({ check }) => check === "connections",
  );
  expect(restored).toMatchObject({ outcome: "notice" });
  await under.kill();
  await under.start();
  await silence();
  await under.client.fork(agent, "f1");
  await silence("f1");
  await under.client.hot(agent, { checkpoint: id, count: 1 });
  await under.client.fork(agent, "f2", { checkpoint: id });
  await silence("f2");
  // And what it allows gets out again, from the agent alone.
  await set([toHost(one.port)]);
  const { generation } = await under.client.show(agent);
  await until("knocks", () => one.said.length >= 3);
  await under.client.sleep(agent);
  expect(new Set(one.said)).toEqual(new Set([`generation ${generation}`]));
});

/** Of this host, but loopback. */
function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses = []) => addresses)
    .filter(({ family, internal }) => family === "IPv4" && !internal)
    .map(({ address }) => address);
}
