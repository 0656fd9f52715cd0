/**
 * The way out of real VMs. Servers on this host are allowed by explicit rules; what they see is the witness. Programs
 * inside know nothing of a proxy.
 */
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { ConnectionView } from "@perdure/sdk";
import { DaemonUnderTest } from "./daemon-under-test.ts";

const under = new DaemonUnderTest();
const agent = "a1";
const root = { user: "root" };

/** What programs inside do: each command prints one line, an errno by its name where it fails. */
const INSIDE = `
import errno, hashlib, socket, struct, sys, threading, time

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
        import os; os.replace(path + ".new", path)
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

command, *arguments = sys.argv[1:]
try: print(globals()[command](*arguments))
except OSError as error: print(name_of(error))
`;

interface Witness {
  readonly port: number;
  /** What connections said so far. */
  readonly said: string[];
  readonly sockets: Set<Socket>;
  accepted: number;
}

const servers: Server[] = [];

/** Says back what it hears. */
async function echo(): Promise<Witness> {
  const said: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    witness.accepted++;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => undefined);
    socket.on("data", (bytes) => said.push(bytes.toString()));
    socket.pipe(socket);
  });
  servers.push(server.listen(0, "127.0.0.1"));
  await once(server, "listening");
  const witness: Witness = {
    port: (server.address() as AddressInfo).port,
    said,
    sockets,
    accepted: 0,
  };
  return witness;
}

let one: Witness;
let two: Witness;

const inside = (...words: (string | number)[]): Promise<string> =>
  under.sh(agent, `python3 /root/inside.py ${words.map((word) => `'${word}'`).join(" ")}`);
const close = () => under.client.setEgress(agent, { rules: [] });
async function newest(): Promise<ConnectionView | undefined> {
  return (await under.client.connections(agent)).at(-1);
}

beforeAll(async () => {
  [one, two] = await Promise.all([echo(), echo()]);
  await under.start({ PERDURE_LISTEN: "127.0.0.1:0" });
  await under.client.create({ name: agent });
  await under.client.writeFile(agent, "/root/inside.py", INSIDE, root);
});
beforeEach(async () => {
  await close();
});
afterAll(async () => {
  for (const server of servers) server.close();
  for (const witness of [one, two]) for (const socket of witness.sockets) socket.destroy();
  expect(await under.end()).toEqual([]);
});

test("nothing gets out of an agent that nothing was said of, and it is told so at once", async () => {
  expect(await under.client.egress(agent)).toMatchObject({ rules: [], wayOut: "open" });
  expect(await inside("say", "127.0.0.2", one.port, "x")).toBe("ECONNREFUSED");
  expect(await inside("say", "localhost.example", one.port, "x")).toBe("reset");
  expect(await inside("say", "93.184.216.34", 80, "x")).toBe("reset");
  expect(one.accepted).toBe(0);
  expect(await newest()).toMatchObject({
    name: null,
    address: "93.184.216.34",
    port: 80,
    outcome: "denied",
    unmediated: false,
    why: "No rule allows it",
  });
});
