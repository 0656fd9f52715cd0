import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { listenFrom } from "./listen-option.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-listen-"));
});
afterEach(() => rm(folder, { recursive: true }));

const plain = { insecure: false, corsOrigins: [] };

it.each([
  ["7070", "127.0.0.1", 7070],
  ["127.0.0.1:0", "127.0.0.1", 0],
  ["127.5.0.1:80", "127.5.0.1", 80],
  ["[::1]:7070", "::1", 7070],
  ["localhost:7070", "localhost", 7070],
])("takes %s without TLS: it is this host's alone", async (listen, host, port) => {
  expect(await listenFrom({ ...plain, listen })).toEqual({
    host,
    port,
    previewDomain: "localhost",
    tls: null,
    corsOrigins: [],
  });
});

it.each(["0.0.0.0:7070", "[::]:7070", "192.0.2.1:7070", "8.8.8.8:53"])(
  "refuses %s without TLS, unless that is asked for",
  async (listen) => {
    await expect(listenFrom({ ...plain, listen })).rejects.toThrow(/reached from other hosts/);
    expect(await listenFrom({ ...plain, listen, insecure: true })).toMatchObject({ tls: null });
    const [tlsCert, tlsKey] = [join(folder, "cert"), join(folder, "key")];
    await writeFile(tlsCert, "CERT");
    await writeFile(tlsKey, "KEY");
    const { tls } = await listenFrom({ ...plain, listen, tlsCert, tlsKey });
    expect(tls).toEqual({ cert: "CERT", key: "KEY", certFile: tlsCert, keyFile: tlsKey });
    expect(await listenFrom({ ...plain, listen, tls: "generated" })).toMatchObject({
      tls: "generated",
    });
  },
);

it.each([
  ["", /is no HOST:PORT/],
  ["localhost", /is no HOST:PORT/],
  ["127.0.0.1:65536", /is no HOST:PORT/],
  ["127.0.0.1:x", /is no HOST:PORT/],
  ["::1:7070", /is no HOST:PORT/],
  ["http://127.0.0.1:7070", /is no HOST:PORT/],
  ["no-such-host.invalid:7070", /is no name of this host/],
])("says what is wrong with %j", async (listen, words) => {
  await expect(listenFrom({ ...plain, listen })).rejects.toThrow(words);
});

it("wants certificate and key together, and readable", async () => {
  const cert = join(folder, "none");
  const asked = { ...plain, listen: "7070", tlsCert: cert };
  await expect(listenFrom(asked)).rejects.toThrow(/given together/);
  await expect(listenFrom({ ...asked, tlsKey: cert })).rejects.toThrow(/--tls-cert: cannot read/);
  const made = { ...plain, listen: "7070", tls: "generated" };
  await expect(listenFrom({ ...made, tlsCert: cert })).rejects.toThrow(/goes without --tls-cert/);
  await expect(listenFrom({ ...made, tls: "yes" })).rejects.toThrow(/is not "generated"/);
});

it.each([
  ["https://console.example", "https://console.example"],
  ["https://console.example/", "https://console.example"],
  ["http://localhost:5173", "http://localhost:5173"],
  ["*", "*"],
])("takes origin %s", async (given, origin) => {
  const { corsOrigins } = await listenFrom({ ...plain, listen: "7070", corsOrigins: [given] });
  expect(corsOrigins).toEqual([origin]);
});

it.each(["console.example", "https://console.example/app", "file:///x", "null", ""])(
  "refuses origin %j",
  async (origin) => {
    const asked = { ...plain, listen: "7070", corsOrigins: [origin] };
    await expect(listenFrom(asked)).rejects.toThrow(/is no origin of a page/);
  },
);

it.each([
  ["Preview.Example.COM.", "preview.example.com"],
  ["localhost", "localhost"],
])("takes %s as the domain of preview hosts", async (text, previewDomain) => {
  expect(await listenFrom({ ...plain, listen: "7070", previewDomain: text })).toMatchObject({
    previewDomain,
  });
});

it.each([
  "",
  ".",
  "a..b",
  "-a.example",
  "a_b.example",
  "127.0.0.1",
  "a:80",
  "a/b",
  `${"a".repeat(64)}.b`,
])('refuses "%s" as the domain of preview hosts', async (previewDomain) => {
  await expect(listenFrom({ ...plain, listen: "7070", previewDomain })).rejects.toMatchObject({
    code: "bad_request",
  });
});
