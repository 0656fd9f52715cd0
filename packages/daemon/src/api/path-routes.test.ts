/** The tree of files over HTTP: ranges, lists, changes of it, and watches. */
import { mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { PerdureError } from "@perdure/protocol";
import type { FakeFiles } from "../../../../test/contract/api/fake-files.ts";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { createRawClient } from "../../../../test/contract/api/raw-client.ts";
import type { RawClient } from "../../../../test/contract/api/raw-client.ts";
import type { FolderEntry } from "../core/ports/guest-link.ts";

const at = "/v1/agents/a1/files";
let folder: string;
let socketPath: string;
let fake: FakeServer;
let client: RawClient;
let files: FakeFiles;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-path-"));
  socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  client = createRawClient(socketPath);
  await client.post("/v1/agents", { name: "a1" });
  files = fake.commands.filesOf("a1");
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

async function put(path: string, body: string, mode = "644"): Promise<void> {
  const headers = { "content-length": String(Buffer.byteLength(body)) };
  const url = `${at}?path=${encodeURIComponent(path)}&mode=${mode}`;
  expect((await client.send("PUT", url, { headers, body })).status).toBe(204);
}

describe("ranges", () => {
  const url = `${at}?path=/digits`;
  beforeEach(() => put("/digits", "0123456789"));

  it.each([
    ["bytes=2-4", "234", "bytes 2-4/10"],
    ["bytes=7-", "789", "bytes 7-9/10"],
    ["bytes=8-99", "89", "bytes 8-9/10"],
    ["bytes=-4", "6789", "bytes 6-9/10"],
    ["bytes=-99", "0123456789", "bytes 0-9/10"],
  ])("%s is partial content", async (range, text, contentRange) => {
    const answer = await client.send("GET", url, { headers: { range } });
    expect(answer).toMatchObject({ status: 206, text });
    expect(answer.headers).toMatchObject({
      "content-range": contentRange,
      "accept-ranges": "bytes",
      "perdure-file-size": "10",
    });
  });

  it.each([
    ["several at once", { range: "bytes=0-1,3-4" }],
    ["another unit", { range: "lines=0-1" }],
    ["a condition on a validator that was never given", { range: "bytes=0-1", "if-range": '"x"' }],
  ])("the whole file is the answer to %s", async (_title, headers) => {
    const answer = await client.send("GET", url, { headers });
    expect(answer).toMatchObject({ status: 200, text: "0123456789" });
    expect(answer.headers["content-range"]).toBeUndefined();
  });

  it.each(["bytes=10-", "bytes=99999999999999999999-", "bytes=-0"])(
    "%s is refused with the size",
    async (range) => {
      const answer = await client.send("GET", url, { headers: { range } });
      expect(answer.status).toBe(416);
      expect(answer.headers["content-range"]).toBe("bytes */10");
      expect(answer.json()).toMatchObject({ code: "range_not_satisfiable", details: { size: 10 } });
    },
  );

  it("an empty file has no range, but an end", async () => {
    await put("/empty", "");
    const empty = `${at}?path=/empty`;
    expect(await client.refused("GET", empty, { headers: { range: "bytes=0-" } })).toBe(
      "range_not_satisfiable",
    );
    const answer = await client.send("GET", empty, { headers: { range: "bytes=-5" } });
    expect(answer).toMatchObject({ status: 200, text: "" });
  });
});

describe("paths", () => {
  it("are described, links as links", async () => {
    await put("/f", "four", "4750");
    files.link("/l", "/f");
    expect((await client.send("GET", `${at}/stat?path=/f`)).json()).toEqual({
      kind: "file",
      size: 4,
      mode: "4750",
      uid: 1000,
      gid: 1000,
      mtimeMs: 1_700_000_000_000,
    });
    expect((await client.send("GET", `${at}/stat?path=/l`)).json()).toMatchObject({ kind: "link" });
    expect(await client.refused("GET", `${at}/stat?path=/none`)).toBe("path_not_found");
  });

  it("are made, moved and removed by one command each, with the defaults that are documented", async () => {
    const target = { tenant: "default", agent: "a1" };
    const { commands } = fake;
    expect((await client.post(`${at}/folder`, { path: "/d" })).status).toBe(204);
    expect(commands.executed.at(-1)).toEqual({
      ...{ kind: "makeFolder", ...target, path: "/d", mode: 0o755, parents: false },
    });
    const named = { path: "/d/\n e", mode: "700", parents: true, user: "root" };
    await client.post(`${at}/folder`, named);
    expect(commands.executed.at(-1)).toMatchObject({ ...named, mode: 0o700 });
    expect((await client.post(`${at}/move`, { from: "/d", to: "/m" })).status).toBe(204);
    expect(commands.executed.at(-1)).toEqual({
      ...{ kind: "movePath", ...target, from: "/d", to: "/m", replace: false },
    });
    expect(await client.refused("DELETE", `${at}?path=/m`)).toBe("path_not_empty");
    expect((await client.send("DELETE", `${at}?path=/m&recursive=true`)).status).toBe(204);
    expect(commands.executed.at(-1)).toEqual({
      ...{ kind: "removePath", ...target, path: "/m", recursive: true },
    });
    expect(await client.refused("DELETE", `${at}?path=/m`)).toBe("path_not_found");
  });

  it.each([
    ["a relative path", "POST", "/folder", { path: "d" }],
    ["a mode that is a number", "POST", "/folder", { path: "/d", mode: 493 }],
    ["a mode that is not octal", "POST", "/folder", { path: "/d", mode: "888" }],
    ["a name with NUL", "POST", "/move", { from: "/a\0", to: "/b" }],
    ["no place to move to", "POST", "/move", { from: "/a" }],
    ["an unknown field", "POST", "/move", { from: "/a", to: "/b", force: true }],
    ["recursive as a number", "DELETE", "?path=/a&recursive=1", undefined],
    ["no path to watch", "GET", "/watch", undefined],
    ["no path to list", "GET", "/list", undefined],
  ])("%s is refused before anything is done", async (_title, method, path, body) => {
    const sent =
      body === undefined
        ? {}
        : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    expect(await client.refused(method, at + path, sent)).toBe("bad_request");
    expect(fake.commands.executed).toHaveLength(1);
  });
});

describe("a folder's list", () => {
  it("has every entry, also with names that are none of a shell's, and an end", async () => {
    await put("/d/two\nlines", "x", "600");
    await put("/d/sub/file", "xy");
    files.link("/d/link", "../elsewhere");
    const [...lines] = (await client.send("GET", `${at}/list?path=/d`)).lines();
    expect(lines.pop()).toEqual({ type: "end" });
    expect(lines).toMatchObject([
      { type: "entry", name: "two\nlines", kind: "file", size: 1, mode: "600", linkTarget: null },
      { name: "sub", kind: "directory" },
      { name: "link", kind: "link", linkTarget: "../elsewhere" },
    ]);
  });

  it("of what is no folder is refused with a status, not inside the stream", async () => {
    await put("/f", "");
    expect(await client.refused("GET", `${at}/list?path=/f`)).toBe("path_not_folder");
  });

  const entry = (name: string): FolderEntry => ({
    ...{
      name,
      kind: "file",
      size: 0,
      mode: 0o100644,
      uid: 0,
      gid: 0,
      mtimeMs: -5,
      linkTarget: null,
    },
  });

  it("that breaks off says so in its last line", async () => {
    fake.commands.listFolder = () =>
      Promise.resolve(
        (async function* () {
          yield await Promise.resolve(entry("a"));
          throw new PerdureError("interrupted", "The agent slept");
        })(),
      );
    const lines = (await client.send("GET", `${at}/list?path=/d`)).lines();
    expect(lines).toMatchObject([{ name: "a" }, { type: "error", error: { code: "interrupted" } }]);
  });

  it("asks the guest for no more than a slow reader takes, and lets go of it", async () => {
    let produced = 0;
    let left = false;
    fake.commands.listFolder = () =>
      Promise.resolve({
        [Symbol.asyncIterator]: () => ({
          next: () =>
            Promise.resolve({ done: false, value: entry(`${"x".repeat(200)}${produced++}`) }),
          return: () => {
            left = true;
            return Promise.resolve({ done: true, value: undefined });
          },
        }),
      });
    const response = await client.open("GET", `${at}/list?path=/d`);
    response.pause();
    let before = -1;
    // Until the kernel's buffers are full.
    await expect
      .poll(() => produced - before === 0 || ((before = produced), false), { interval: 200 })
      .toBe(true);
    expect(produced).toBeLessThan(50_000);
    response.destroy();
    await expect.poll(() => left).toBe(true);
  });

  it("is let go of by a reader that left before it began", async () => {
    const asked = Promise.withResolvers<undefined>();
    const begun = Promise.withResolvers<undefined>();
    let left = 0;
    fake.commands.listFolder = async () => {
      asked.resolve(undefined);
      await begun.promise;
      return {
        [Symbol.asyncIterator]: () => ({
          next: () => new Promise<never>(() => undefined),
          return: () => Promise.resolve({ done: true, value: void (left += 1) }),
        }),
      };
    };
    const request = httpRequest({ socketPath, path: `${at}/list?path=/d` });
    request.on("error", () => undefined).end();
    await asked.promise;
    request.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    begun.resolve(undefined);
    await expect.poll(() => left).toBe(1);
  });
});

describe("a watch", () => {
  const url = `${at}/watch?path=/d`;

  it("tells what happens, and ends with interrupted when the agent sleeps", async () => {
    await put("/d/a", "x");
    const watching = client.send("GET", `${url}&recursive=true`);
    await expect.poll(() => files.watchers).toBe(1);
    await put("/d/b", "y");
    await put("/d/b", "z");
    await client.post(`${at}/move`, { from: "/d/b", to: "/d/c" });
    await client.send("DELETE", `${at}?path=/d/c`);
    files.tell({ type: "missed" });
    await client.send("POST", "/v1/agents/a1/sleep");
    expect((await watching).lines()).toEqual([
      { type: "ready" },
      { type: "created", path: "/d/b" },
      { type: "changed", path: "/d/b" },
      { type: "moved", path: "/d/c", from: "/d/b" },
      { type: "removed", path: "/d/c" },
      { type: "missed" },
      { type: "interrupted", reason: "sleep" },
    ]);
  });

  it("ends where the path itself is gone", async () => {
    await put("/d", "x");
    const watching = client.send("GET", url);
    await expect.poll(() => files.watchers).toBe(1);
    await client.send("DELETE", `${at}?path=/d`);
    expect((await watching).lines().slice(1)).toEqual([
      { type: "removed", path: "/d" },
      { type: "end" },
    ]);
  });

  it("ends with interrupted when the daemon closes, though nothing happens", async () => {
    await put("/d", "x");
    const watching = client.send("GET", url);
    await expect.poll(() => files.watchers).toBe(1);
    await fake.server.close();
    expect((await watching).lines().at(-1)).toEqual({ type: "interrupted", reason: "daemon" });
  });

  it("is let go of at once by a reader that left, though nothing happens", async () => {
    await put("/d", "x");
    const response = await client.open("GET", url);
    await new Promise((resolve) => response.once("data", resolve));
    expect(files.watchers).toBe(1);
    response.destroy();
    await expect.poll(() => files.watchers).toBe(0);
  });

  it("wakes a sleeping agent, or not where it was told so", async () => {
    await put("/d", "x");
    await client.send("POST", "/v1/agents/a1/sleep");
    const { commands } = fake;
    const state = async () => (await commands.show({ tenant: "default", agent: "a1" })).state;
    expect(await client.refused("GET", `${url}&wakes=false`)).toBe("agent_state");
    expect(await state()).toBe("asleep");
    (await client.open("GET", url)).destroy();
    expect(await state()).toBe("awake");
  });

  it("of what is not there is refused", async () => {
    expect(await client.refused("GET", url)).toBe("path_not_found");
  });
});
