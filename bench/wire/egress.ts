/**
 * 100 MiB into a program inside, from a server on this host that it connects to, and over a connection to a port of its own,
 * in turns: the same program, the same link, without the way out. Timed from the first byte until the program has all.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import { run as runInside } from "../inside.ts";
import { Agent } from "../ours/agent.ts";
import { startDaemon, type Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";
import { timed } from "./client.ts";

const SIZE = 100 * 1024 * 1024;
const PIECE = 256 * 1024;
const PORT = 7100;
const HOST = "host.perdure.internal";

/** Takes SIZE bytes of each connection, then says so. */
const PROGRAM = `
import socket, sys
size = ${SIZE}
def take(peer):
    left = size
    room = bytearray(1 << 18)
    while left:
        got = peer.recv_into(room)
        if got == 0: raise SystemExit("the connection ended early")
        left -= got
    peer.sendall(b"x")
    peer.close()
if sys.argv[1] == "serve":
    server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    print("ready", flush=True)
    while True: take(server.accept()[0])
else:
    take(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
`;

const limit = {
  name: "egress_vs_direct",
  what: "100 MiB from a local server through the egress, over the same through the bare link",
  relation: "≤",
  limit: 1.5,
} as const;

export async function compareEgress(field: Field): Promise<Findings> {
  const { context } = field;
  const daemon = await startDaemon(field);
  const agent = await Agent.create(daemon, field.shape);
  const piece = randomBytes(PIECE);
  const program = (...words: string[]) => ["python3", "-c", PROGRAM, ...words];
  const server = createServer().listen(0, "127.0.0.1");
  field.cleanup.add("the server", async () => {
    server.close();
    await once(server, "close");
  });
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await daemon.client.setEgress(agent.name, {
    rules: [{ action: "allow", to: HOST, ports: [port], private: true }],
  });

  const inside = await agent.start(program("serve", String(PORT)));
  for await (const said of inside.output(0)) if (said.type === "output") break;
  await daemon.quiet(1);

  const throughEgress = async (): Promise<number> => {
    const taken = runInside(agent, program(HOST, String(port)));
    const [socket] = (await once(server, "connection")) as [Socket];
    const ms = await timed(async () => {
      for (let sent = 0; sent < SIZE; sent += PIECE) {
        if (!socket.write(piece)) await once(socket, "drain");
      }
      await once(socket, "data");
    });
    socket.destroy();
    await taken;
    return ms;
  };
  const direct = async (): Promise<number> => {
    await using connection = await daemon.client.connect(agent.name, PORT);
    return await timed(async () => {
      for (let sent = 0; sent < SIZE; sent += PIECE) await connection.write(piece);
      for await (const done of connection) if (done.length > 0) break;
    });
  };
  await throughEgress().then(direct);
  const [egress, bare]: [number[], number[]] = [[], []];
  for (let i = 0; i < context.runs; i++) {
    egress.push(await throughEgress());
    bare.push(await direct());
    const last = [egress, bare].map((all) => `${(all.at(-1) ?? 0).toFixed(0)} ms`);
    context.progress(`egress ${i + 1}/${context.runs}: ${last.join(", bare link ")}`);
  }
  const ratio = ratioOfMedians(egress, bare);
  return found({
    metrics: { egress: metric("ms", egress), bare_link: metric("ms", bare) },
    ratios: { egress_vs_direct: ratio },
    bars: [judged(limit, ratio)],
  });
}
