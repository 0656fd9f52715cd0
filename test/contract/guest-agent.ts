/** The real guest agent as an ordinary process of this host, serving a socket pair: for tests. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readFile, rm, rmdir } from "node:fs/promises";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { Duplex, duplexPair } from "node:stream";
import { fileURLToPath } from "node:url";
import { hostClock } from "../../packages/daemon/src/guest-link/host-clock.ts";
import { StreamGuestLink } from "../../packages/daemon/src/guest-link/link.ts";
import type { GuestCapability, GuestLinkSubject } from "./guest-link/subject.ts";

/** Another build of the agent, such as the sanitized one, by PERDURE_GUEST_AGENT. */
const BINARY =
  process.env["PERDURE_GUEST_AGENT"] ??
  fileURLToPath(new URL("../../guest/build/perdure-guest", import.meta.url));

/** Why the real agent cannot be tested here; undefined where it can. */
export function whyNoGuestAgent(): string | undefined {
  return existsSync(BINARY) ? undefined : `${BINARY} is not built: make -C guest`;
}

export async function openGuestAgent(): Promise<GuestLinkSubject> {
  const isRoot = userInfo().uid === 0;
  const folder = await mkdtemp(join(tmpdir(), "perdure-agent-"));
  await chmod(folder, 0o777);
  const run = join(folder, "run");
  await mkdir(run);
  const cgroup = isRoot ? await makeCgroup() : undefined;
  const options = ["--serve-fd", "3", "--run", run];
  if (cgroup !== undefined) options.push("--cgroup", cgroup);
  const agent = spawn(BINARY, options, { stdio: ["ignore", "inherit", "inherit", "pipe"] });
  const ended = new Promise<void>((resolve) => agent.once("exit", () => resolve()));
  const wire = agent.stdio[3];
  if (!(wire instanceof Duplex)) throw new Error("The agent has no socket");

  // One port for the agent, as in a VM; a new pair for each connection of the host.
  let host: Duplex | undefined;
  wire.on("data", (chunk: Buffer) => host?.write(chunk));
  wire.on("error", () => undefined);
  const connect = (): Promise<StreamGuestLink> => {
    host?.destroy();
    const [mine, theirs] = duplexPair();
    host = mine;
    mine.on("data", (chunk: Buffer) => wire.write(chunk));
    mine.on("error", () => undefined);
    return Promise.resolve(new StreamGuestLink(theirs, hostClock));
  };

  const missing: Partial<Record<GuestCapability, string>> = {
    entropy: "The agent leaves the random pool of a test host alone",
    "clock-source": "The agent leaves the clock of a test host alone",
    "drop-caches": "The agent leaves the caches of a test host alone",
    "way-out": "The agent leaves the network of a test host alone: guest/test/outbound.py tests it",
  };
  if (speaks() < 3) missing["version-3"] = `${BINARY} is of an older version of the protocol`;
  if (speaks() < 2) missing["version-2"] = `${BINARY} is of an older version of the protocol`;
  if (cgroup === undefined) {
    missing.freeze = "Not root, or no cgroup version 2 that may be written to";
    missing.stats = missing.freeze;
  }
  return {
    connect,
    user: isRoot ? "nobody" : userInfo().username,
    folder,
    missing,
    listen,
    async close() {
      wire.end();
      const late = setTimeout(() => agent.kill("SIGKILL"), 10_000);
      await ended;
      clearTimeout(late);
      await rm(folder, { recursive: true, force: true });
      if (cgroup !== undefined) await rmdir(cgroup).catch(() => undefined);
    },
  };
}

/** A server of this host is one inside: the agent serves this host. */
async function listen(
  serve: (peer: Duplex, breakOff: () => void) => void,
): Promise<{ port: number; close: () => Promise<void> }> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => undefined);
    serve(socket, () => void socket.resetAndDestroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    server.close();
    await once(server, "close");
  };
  return { port, close };
}

/** The version of the protocol that the agent says it speaks. */
function speaks(): number {
  const line = execFileSync(BINARY, ["--version"], { encoding: "utf8" });
  return Number(/protocol (\d+)/.exec(line)?.[1]);
}

/** A new cgroup under the host's version 2 hierarchy. */
async function makeCgroup(): Promise<string | undefined> {
  for (const line of (await readFile("/proc/mounts", "utf8")).split("\n")) {
    const [, folder = "", kind] = line.split(" ");
    if (kind !== "cgroup2") continue;
    const path = join(folder, `perdure-contract-${process.pid}`);
    try {
      await mkdir(path);
      return path;
    } catch {
      return undefined;
    }
  }
  return undefined;
}
