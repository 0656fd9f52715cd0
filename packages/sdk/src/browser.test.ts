/** The client as a browser gets it, where there is nothing that a browser has not. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createContext, runInContext } from "node:vm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";
import { bundle } from "../../../test/browser/bundle.ts";
import { expected } from "../../../test/browser/expected.ts";
import type { Findings } from "../../../test/browser/program.ts";
import { openTcpDoor } from "../../../test/browser/tcp-door.ts";
import type { TcpDoor } from "../../../test/browser/tcp-door.ts";

const program = join(import.meta.dirname, "../../../test/browser/program.ts");
let home: string;
let fake: FakeServer;
let door: TcpDoor;
let code: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "perdure-browser-"));
  const socketPath = join(home, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, home);
  door = await openTcpDoor(socketPath);
  code = await bundle(program);
});
afterAll(async () => {
  door.close();
  await fake.close();
  await rm(home, { recursive: true });
});

it("is bundled for a browser without one module or global of Node", () => {
  expect(code).toContain("from-page");
  expect(code.match(/node:|\brequire\(|\bBuffer\b|\bprocess\.(env|versions|nextTick)/g)).toBeNull();
});

it("refuses to be bundled with a module of Node", async () => {
  await expect(bundle(join(import.meta.dirname, "index.ts"))).rejects.toThrow(/node:/);
});

it("does all that a page needs with what a browser has", async () => {
  const { fetch, WebSocket, Blob, URL, URLSearchParams, AbortController, AbortSignal, crypto } =
    globalThis;
  const { TextEncoder, TextDecoder, atob, btoa, setTimeout, clearTimeout } = globalThis;
  // Those of one realm, as on a page.
  const { Uint8Array, ArrayBuffer, DataView } = globalThis;
  const web = {
    fetch,
    WebSocket,
    Blob,
    URL,
    URLSearchParams,
    AbortController,
    AbortSignal,
    crypto,
  };
  const page = {
    ...web,
    ...{ TextEncoder, TextDecoder, atob, btoa, setTimeout, clearTimeout },
    ...{ Uint8Array, ArrayBuffer, DataView },
    target: { url: door.url, apiKey: "key" },
  } as typeof web & { findings?: Promise<Findings> };
  runInContext(code, createContext(page));
  expect(await page.findings).toEqual(expected);
});
