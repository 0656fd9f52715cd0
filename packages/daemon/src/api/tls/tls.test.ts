/** TLS of the TCP listener, with clients that have nothing to do with us: Node's own, curl and openssl. */
import { spawn, spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import type { TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { portLabel } from "@perdure/protocol";
import type { AgentId } from "@perdure/protocol";
import { openFakeServer } from "../../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../../test/contract/api/fake-server.ts";
import { createMemoryStateStore } from "../../../../../test/contract/memory-state-store.ts";
import { sampleAgent } from "../../../../../test/contract/state-store-sample.ts";
import { createSystemClock } from "../../clock.ts";
import { ApiKeys } from "../api-keys.ts";
import { AUTHORITY_LEFT_MS, AUTHORITY_LIFE_MS } from "./authority.ts";
import type { Certificates } from "./certificates.ts";
import { openGeneratedCertificates, SERVER_LIFE_MS } from "./generated.ts";
import { givenCertificates } from "./given.ts";
import { openCertificates } from "./open.ts";

const ID = "ag_0123456789abcdefghjkmnpqrs" as AgentId;

let folder: string;
let logged: { level: string; message: string; facts: object }[];
let closes: (() => unknown)[];
const log = (level: string, message: string, facts: object = {}): void => {
  logged.push({ level, message, facts });
};

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-tls-"));
  [logged, closes] = [[], []];
});
afterEach(async () => {
  for (const close of closes.reverse()) await close();
  await rm(folder, { recursive: true });
});

interface Wanted {
  readonly host?: string;
  readonly domain?: string;
  readonly nowMs?: () => number;
  readonly lookMs?: number;
}

async function generated(wanted: Wanted = {}): Promise<Certificates> {
  const certificates = await openGeneratedCertificates({
    ...{
      folder: join(folder, "tls"),
      host: "127.0.0.1",
      domain: "localhost",
      nowMs: Date.now,
      log,
    },
    ...wanted,
  });
  closes.push(() => certificates.close());
  return certificates;
}

async function serve(
  tls: Certificates,
  { host = "127.0.0.1", domain = "localhost" }: Wanted = {},
  state = createMemoryStateStore(),
): Promise<{ fake: FakeServer; port: number }> {
  const fake = await openFakeServer(join(folder, "run.sock"), folder, {
    ...{ state, daemonLog: log, handshakeMs: 500 },
    tcp: { host, port: 0, tls, corsOrigins: [], previewDomain: domain },
  });
  closes.push(() => fake.close());
  return { fake, port: Number(new URL(fake.server.url ?? "").port) };
}

/** Who shakes hands, and checks the name as Node does. */
async function shake(
  port: number,
  name: string,
  ca: string,
  alpn: string[] = [],
): Promise<TLSSocket> {
  const socket = connectTls({
    ...{ port, host: "127.0.0.1", ca, ALPNProtocols: alpn },
    ...(/^[\d.:]+$/.test(name) ? {} : { servername: name }),
  });
  closes.push(() => socket.destroy());
  await once(socket, "secureConnect");
  return socket;
}

async function created({ commands }: FakeServer): Promise<AgentId> {
  const { id } = await commands.execute({
    ...{ kind: "create", tenant: "default", name: "a1", image: "debian", onCrash: "checkpoint" },
    shape: { memoryBytes: 512 * 2 ** 20, cpus: 1, diskBytes: 8 * 2 ** 30 },
  });
  return id;
}

const peer = (socket: TLSSocket): string => socket.getPeerX509Certificate()?.fingerprint256 ?? "";

async function curl(...args: string[]): Promise<{ code: number; out: string }> {
  const child = spawn("curl", ["-sS", "-m", "60", ...args], { stdio: ["ignore", "pipe", "pipe"] });
  const closed = once(child, "close");
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await closed) as [number];
  return { code, out: code === 0 ? out : err };
}

const authority = ({ authorityFile }: Certificates): Promise<string> =>
  readFile(authorityFile ?? "", "utf8");

describe("generated certificates", () => {
  test("let Node and curl in by every name and address of this host, and by names of ports", async () => {
    const tls = await generated({ domain: "preview.example.com" });
    const { port } = await serve(tls, { domain: "preview.example.com" });
    const ca = await authority(tls);
    for (const name of [
      ...["localhost", "127.0.0.1", `${portLabel(ID, 8000)}.localhost`, "preview.example.com"],
      ...[`${portLabel(ID, 8000)}.preview.example.com`, "api.preview.example.com"],
    ]) {
      const socket = await shake(port, name, ca);
      expect(socket.authorized, name).toBe(true);
      const at = `${name}:${port}`;
      const answer = await curl(
        ...["--cacert", tls.authorityFile ?? "", "--resolve", `${at}:127.0.0.1`],
        `https://${at}/v1/health`,
      );
      // Of the listener's own API, of E2B's, and of programs inside.
      const says = name.startsWith("api.")
        ? '"code":401'
        : /^8000-.*example/.test(name)
          ? "unauthenticated"
          : '{"alive":true}';
      expect(answer, name).toMatchObject({ code: 0 });
      expect(answer.out).toContain(says);
    }
    for (const name of [
      "example.com",
      "evil.example",
      "a.b.localhost",
      "-x.localhost",
      "localhos",
    ]) {
      await expect(shake(port, name, ca), name).rejects.toThrow(/altnames/);
    }
    // Of somebody who does not trust it.
    expect((await curl(`https://127.0.0.1:${port}/v1/health`)).code).toBe(60);
    await expect(shake(port, "localhost", "")).rejects.toThrow();
  });

  test("speak HTTP/1.1 with those that offer HTTP/2, too", async () => {
    const tls = await generated();
    const { port } = await serve(tls);
    const socket = await shake(port, "localhost", await authority(tls), ["h2", "http/1.1"]);
    expect(socket.alpnProtocol).toBe("http/1.1");
    const { out } = await curl(
      ...["--http2", "-w", "%{http_version}", "--cacert", tls.authorityFile ?? ""],
      `https://localhost:${port}/v1/health`,
    );
    expect(out).toBe('{"alive":true}1.1');
  });

  test("are of an authority that is kept, its key for the daemon alone, and can vouch for nobody else", async () => {
    const first = await generated();
    const path = join(folder, "tls", "ca-key.pem");
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    await chmod(path, 0o644);
    const again = await generated();
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await authority(again)).toBe(await authority(first));
    expect(again.pair.cert).not.toBe(first.pair.cert);
    expect(logged.map(({ level }) => level)).toEqual(["warn", "info"]);
    const key = (await readFile(path, "utf8")).split("\n")[1] ?? "";
    const own = again.pair.key.split("\n")[1] ?? "";
    for (const secret of [key, own, "PRIVATE"]) {
      expect(secret.length).toBeGreaterThan(6);
      expect(JSON.stringify(logged)).not.toContain(secret);
    }
    // Signed by the authority itself, for a bank: openssl holds its constraint against it.
    const run = (...args: string[]) =>
      spawnSync("openssl", args, { cwd: folder, encoding: "utf8" });
    const made = run(
      ...["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ...["-keyout", "bank.key", "-out", "bank.csr", "-subj", "/CN=bank"],
    );
    expect(made.status, made.stderr).toBe(0);
    for (const [name, isValid] of [
      ["DNS:bank.example", false],
      ["DNS:x.localhost", true],
      ["IP:8.8.8.8", false],
      ["IP:2001:4860:4860::8888", false],
      ["IP:127.0.0.1", true],
      ["IP:10.1.2.3", true],
    ] as const) {
      await writeFile(join(folder, "names"), `subjectAltName=${name}\n`);
      const signed = run(
        ...["x509", "-req", "-in", "bank.csr", "-CA", "tls/ca.pem", "-CAkey", "tls/ca-key.pem"],
        ...["-days", "1", "-extfile", "names", "-out", "bank.pem"],
      );
      expect(signed.status, signed.stderr).toBe(0);
      const verified = run("verify", "-x509_strict", "-CAfile", "tls/ca.pem", "bank.pem");
      expect(verified.status === 0, verified.stderr).toBe(isValid);
    }
    await writeFile(join(folder, "server.pem"), again.pair.cert);
    const strict = run("verify", "-x509_strict", "-CAfile", "tls/ca.pem", "server.pem");
    expect(strict.status, strict.stderr).toBe(0);
  });

  test("are made anew in time, while connections go on", async () => {
    let nowMs = Date.now() - SERVER_LIFE_MS / 2;
    const tls = await generated({ nowMs: () => nowMs, lookMs: 10 });
    const { port } = await serve(tls);
    const ca = await authority(tls);
    const open = await shake(port, "localhost", ca);
    const named = await shake(port, "x.localhost", ca);
    expect(peer(await shake(port, "x.localhost", ca))).toBe(peer(named));
    nowMs = Date.now();
    await expect.poll(async () => peer(await shake(port, "localhost", ca))).not.toBe(peer(open));
    expect(peer(await shake(port, "x.localhost", ca))).not.toBe(peer(named));
    const { validTo } = new X509Certificate(tls.pair.cert);
    expect(Date.parse(validTo)).toBeGreaterThan(nowMs + SERVER_LIFE_MS / 2);
    expect(await authority(tls)).toBe(ca);
    open.end("GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    expect(await text(open)).toContain('{"alive":true}');
  });

  test("have another authority where that of before ends soon, or may not vouch for the domain", async () => {
    const nowMs = Date.now();
    const first = await authority(await generated({ nowMs: () => nowMs }));
    const soon = nowMs + AUTHORITY_LIFE_MS - AUTHORITY_LEFT_MS;
    expect(await authority(await generated({ nowMs: () => soon - 1000 }))).toBe(first);
    const second = await authority(await generated({ nowMs: () => soon }));
    expect(second).not.toBe(first);
    const third = await authority(await generated({ nowMs: () => soon, domain: "other.example" }));
    expect(third).not.toBe(second);
    await writeFile(join(folder, "tls", "ca-key.pem"), (await generated()).pair.key);
    const fourth = await authority(await generated({ domain: "other.example" }));
    expect(fourth).not.toBe(third);
    for (const damaged of ["ca.pem", "ca-key.pem"]) {
      const before = await authority(await generated());
      await writeFile(join(folder, "tls", damaged), "nothing");
      expect(await authority(await generated())).not.toBe(before);
    }
  });

  test("carry a page and a WebSocket of a port inside, whose program is told that it was https", async () => {
    const state = createMemoryStateStore();
    const tls = await generated();
    const { fake, port } = await serve(tls, {}, state);
    const id = await created(fake);
    const inside = createServer((request, response) => {
      response.end(`${String(request.headers["x-forwarded-proto"])} ${request.url ?? ""}`);
    });
    new WebSocketServer({ server: inside }).on("connection", (socket) => {
      socket.on("message", (data) => socket.send(data));
    });
    inside.listen(0, "127.0.0.1");
    await once(inside, "listening");
    closes.push(() => inside.close());
    const { port: insidePort } = inside.address() as AddressInfo;
    const token = "pt_0";
    const ports = { [insidePort]: { public: false, token } };
    const agent = sampleAgent("a1", { id, ports });
    await state.commit([{ kind: "insert-agent", agent }]);
    const host = `${portLabel(id, insidePort)}.localhost:${port}`;
    const resolved = ["--cacert", tls.authorityFile ?? "", "--resolve", `${host}:127.0.0.1`];
    const page = await curl(
      ...resolved,
      ...["-c", join(folder, "jar"), "-b", join(folder, "jar"), "-L"],
      `https://${host}/a?perdure_token=${token}`,
    );
    expect(page).toEqual({ code: 0, out: "https /a" });
    expect(await readFile(join(folder, "jar"), "utf8")).toMatch(/\tTRUE\t\d+\tperdure_token\t/);
    const socket = new WebSocket(`wss://${host}/`, {
      ...{ ca: await authority(tls), headers: { "x-perdure-token": token } },
      lookup: (_name, { all }: { all?: boolean }, done) => {
        if (all === true) done(null, [{ address: "127.0.0.1", family: 4 }]);
        else done(null, "127.0.0.1", 4);
      },
    });
    await once(socket, "open");
    socket.send("hello");
    const [echo] = (await once(socket, "message")) as [Buffer];
    expect(echo.toString()).toBe("hello");
    socket.close();
  });
});

test("E2B's SDK finds API and sandboxes by the domain alone, and trusts them by the file", async () => {
  const domain = "sandboxes.example.com";
  const tls = await generated({ domain });
  const { fake, port } = await serve(tls, { domain });
  const keys = new ApiKeys({ state: fake.state, clock: createSystemClock(), log });
  const wanted = { tenant: "default", name: "k", scope: "admin", agents: null, expiresAtMs: null };
  const id = await created(fake);
  const agent = sampleAgent("a1", { id });
  await fake.state.commit([{ kind: "insert-agent", agent }]);
  const { e2bKey } = await keys.create(wanted as never);
  const program = `
    import dns from "node:dns";
    const { lookup } = dns;
    dns.lookup = (name, options, done) => name.endsWith(".${domain}") ? lookup("127.0.0.1", options, done) : lookup(name, options, done);
    const { Sandbox } = await import(${JSON.stringify(import.meta.resolve("e2b"))});
    const sandbox = await Sandbox.connect(${JSON.stringify(id.slice("ag_".length))});
    const running = await sandbox.isRunning();
    console.log(JSON.stringify({ running, host: sandbox.getHost(8000), killed: await sandbox.kill() }));`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    env: {
      ...{ PATH: process.env["PATH"], NODE_EXTRA_CA_CERTS: tls.authorityFile ?? "" },
      ...{ E2B_DOMAIN: `${domain}:${port}`, E2B_API_KEY: e2bKey },
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  expect(out, err).toMatch(/^{/);
  const found = JSON.parse(out) as { host: string };
  expect(found).toMatchObject({ running: true, killed: true });
  expect(found.host).toMatch(new RegExp(`^8000-[0-9a-z]{26}\\.${domain}:${port}$`));
});

describe("given certificates", () => {
  async function make(): Promise<{ cert: string; key: string }> {
    const made = spawnSync("openssl", [
      ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
      ...["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
      ...["-keyout", join(folder, "made-key"), "-out", join(folder, "made")],
    ]);
    expect(made.status).toBe(0);
    const [cert, key] = await Promise.all(
      ["made", "made-key"].map((name) => readFile(join(folder, name), "utf8")),
    );
    return { cert: cert ?? "", key: key ?? "" };
  }
  const files = () => ({ certFile: join(folder, "cert"), keyFile: join(folder, "key") });

  test("are spoken with, and nothing in the clear is", async () => {
    const made = await make();
    const { cert } = made;
    const facts = { home: folder, host: "127.0.0.1", domain: "localhost", nowMs: Date.now, log };
    const tls = await openCertificates({ ...files(), ...made }, facts);
    closes.push(() => tls.close());
    const { fake, port } = await serve(tls);
    expect(fake.server.url).toMatch(/^https:/);
    const { out } = await curl(
      "--cacert",
      join(folder, "made"),
      `https://127.0.0.1:${port}/v1/health`,
    );
    expect(out).toBe('{"alive":true}');
    expect((await shake(port, "127.0.0.1", cert)).authorized).toBe(true);
    const plain = connect(port, "127.0.0.1");
    plain.write("GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    expect(await text(plain).catch(() => "")).not.toContain("alive");
  });

  test("are used as soon as they are renewed, and those of before while the files do not fit", async () => {
    const first = await make();
    const tls = givenCertificates(files(), first, log, 10);
    closes.push(() => tls.close());
    const { port } = await serve(tls);
    const shown = async (): Promise<string> => {
      const socket = connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false });
      await once(socket, "secureConnect");
      const fingerprint = peer(socket);
      socket.destroy();
      return fingerprint;
    };
    const before = await shown();
    const second = await make();
    await writeFile(files().keyFile, first.key);
    await writeFile(files().certFile, second.cert);
    await expect.poll(() => logged.at(-1)?.message).toBe("A renewed certificate is not used");
    expect(await shown()).toBe(before);
    await writeFile(files().keyFile, second.key);
    await expect.poll(shown).toBe(new X509Certificate(second.cert).fingerprint256);
    await writeFile(files().certFile, "nothing");
    await expect.poll(() => logged.at(-1)?.message).toBe("A renewed certificate is not used");
    expect(await shown()).toBe(new X509Certificate(second.cert).fingerprint256);
    expect(JSON.stringify(logged)).not.toContain("PRIVATE");
  });

  test("that are none are told with their cause", async () => {
    const tls = givenCertificates(files(), { cert: "no", key: "no" }, log);
    closes.push(() => tls.close());
    await expect(serve(tls)).rejects.toMatchObject({ code: "bad_request" });
  });
});

describe("who does not go on", () => {
  test("with the handshake is cut, as is what is no TLS", async () => {
    const tls = await generated();
    const { port } = await serve(tls);
    const ca = await authority(tls);
    await Promise.all(
      Array.from({ length: 300 }, async (_, first) => {
        const socket = connect(port, "127.0.0.1");
        socket.on("error", () => undefined).resume();
        const bytes = crypto.getRandomValues(new Uint8Array(400));
        // A record of a handshake with no sense in it, or no record at all, or nothing.
        bytes.set([first, 3, 1, 0, 100]);
        if (first < 256) socket.write(bytes);
        await once(socket, "close");
      }),
    );
    expect((await shake(port, "localhost", ca)).authorized).toBe(true);
  });
});

test("localhost is listened on by both of its addresses, with preview hosts behind either", async () => {
  const tls = await generated({ host: "localhost" });
  const { port } = await serve(tls, { host: "localhost" });
  for (const address of ["127.0.0.1", "[::1]"]) {
    for (const [name, says] of [
      ["localhost", "alive"],
      [`${portLabel(ID, 8000)}.localhost`, "Cannot visit the port"],
    ] as const) {
      const { out } = await curl(
        ...["--cacert", tls.authorityFile ?? "", "--resolve", `${name}:${port}:${address}`],
        `https://${name}:${port}/v1/health`,
      );
      expect(out, `${name} at ${address}`).toContain(says);
    }
  }
});
