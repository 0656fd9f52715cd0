/** Images over HTTP: made from archives and recipes, listed, removed. */
import { mkdtemp, rm } from "node:fs/promises";
import { request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { recipeSchema } from "@perdure/protocol";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { createRawClient } from "../../../../test/contract/api/raw-client.ts";
import type { RawClient } from "../../../../test/contract/api/raw-client.ts";

let folder: string;
let socketPath: string;
let fake: FakeServer;
let client: RawClient;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-image-"));
  socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  client = createRawClient(socketPath);
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

const binary = { "content-type": "application/octet-stream" };

it("an archive becomes an image, with what is done on the way", async () => {
  const url = "/v1/images?name=web&ref=app%3A1&start=false";
  const answer = await client.send("POST", url, { headers: binary, body: Buffer.from("archive") });
  expect(answer).toMatchObject({ status: 201 });
  expect(answer.lines().map(({ type }) => type)).toEqual(["progress", "image"]);
  expect(fake.images.asked).toEqual([{ name: "web", reference: "app:1", start: false }]);
  const { id } = answer.lines()[1]?.["image"] as { id: string };
  const shown = await client.send("GET", `/v1/images/${id}`);
  expect(shown.json()).toMatchObject({ id, names: ["web"] });
  const list = (await client.send("GET", "/v1/images")).json();
  expect(list).toMatchObject({ images: [{ names: ["debian"] }, { names: ["web"] }] });
  expect((await client.send("DELETE", "/v1/images/web")).json()).toMatchObject({ id, names: [] });
  expect(await client.refused("GET", "/v1/images/web")).toBe("image_not_found");
});

it("an archive that cannot be taken ends with the error", async () => {
  const answer = await client.send("POST", "/v1/images?name=web", {
    headers: binary,
    body: "broken",
  });
  expect(answer.lines().at(-1)).toMatchObject({
    type: "error",
    error: { code: "image_archive_invalid" },
  });
  expect(await client.refused("GET", "/v1/images/web")).toBe("image_not_found");
});

it("an archive comes in chunks, however long", async () => {
  const chunked = httpRequest({
    socketPath,
    method: "POST",
    path: "/v1/images?name=big",
    headers: binary,
  });
  const answered = new Promise<number | undefined>((resolve, reject) => {
    chunked.once("error", reject);
    chunked.once("response", (response) => {
      response.resume().once("end", () => resolve(response.statusCode));
    });
  });
  for (let piece = 0; piece < 40; piece++) chunked.write(Buffer.alloc(100_000, piece));
  chunked.end();
  expect(await answered).toBe(201);
  expect((await client.send("GET", "/v1/images/big")).status).toBe(200);
});

it("work whose caller goes away is cancelled", async () => {
  for (const [path, headers, body] of [
    ["/v1/images?name=slow", binary, "slow"],
    [
      "/v1/images/build",
      { "content-type": "application/json" },
      JSON.stringify({ name: "slow", recipe: { finish: "slow" } }),
    ],
  ] as const) {
    const before = fake.images.cancelled;
    const response = await client.open("POST", path, { headers, body });
    await new Promise((seen) => response.once("data", seen));
    response.destroy();
    await expect.poll(() => fake.images.cancelled).toBe(before + 1);
  }
  expect(await client.refused("GET", "/v1/images/slow")).toBe("image_not_found");
});

it("work that the daemon's end finds ends with a word", async () => {
  const response = await client.open("POST", "/v1/images?name=slow", {
    headers: binary,
    body: "slow",
  });
  let text = "";
  response.on("data", (chunk: Buffer) => (text += chunk.toString()));
  await new Promise((seen) => response.once("data", seen));
  const ended = new Promise((end) => response.once("end", end));
  await fake.server.close(5_000);
  await ended;
  expect(text).toContain('"daemon_unreachable"');
});

it("a recipe is what it says, with defaults for the rest", async () => {
  const recipe = { packages: ["nodejs"], env: { A: "1" } };
  const answer = await client.post("/v1/images/build", { name: "node", recipe });
  expect(answer.lines().at(-1)).toMatchObject({ type: "image", image: { names: ["node"] } });
  expect(fake.images.asked).toEqual([{ name: "node", recipe: recipeSchema.parse(recipe) }]);
});

it.each([
  ["no name", "POST", "/v1/images", undefined],
  ["a name that is an id", "POST", `/v1/images?name=${"a".repeat(64)}`, undefined],
  ["a name in capitals", "POST", "/v1/images?name=Web", undefined],
  ["an unknown setting", "POST", "/v1/images?name=web&x=1", undefined],
  ["a start that is neither", "POST", "/v1/images?name=web&start=yes", undefined],
  ["no recipe", "POST", "/v1/images/build", { name: "a" }],
  [
    "a package that is none",
    "POST",
    "/v1/images/build",
    { name: "a", recipe: { packages: ["-o=x"] } },
  ],
  [
    "a package with a blank",
    "POST",
    "/v1/images/build",
    { name: "a", recipe: { packages: ["a b"] } },
  ],
  [
    "a recipe with an unknown field",
    "POST",
    "/v1/images/build",
    { name: "a", recipe: { pkgs: [] } },
  ],
  [
    "a script that is too long",
    "POST",
    "/v1/images/build",
    { name: "a", recipe: { finish: "x".repeat(70_000) } },
  ],
  ["a script with NUL", "POST", "/v1/images/build", { name: "a", recipe: { finish: "a\0b" } }],
  [
    "a setuid path that is relative",
    "POST",
    "/v1/images/build",
    { name: "a", recipe: { setuid: ["bin/su"] } },
  ],
  ["an image of no form", "GET", "/v1/images/-", undefined],
])("%s is refused before anything is done", async (_title, method, path, body) => {
  const sent =
    body === undefined
      ? method === "POST"
        ? { headers: binary, body: "archive" }
        : {}
      : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  expect(await client.refused(method, path, sent)).toBe("bad_request");
  expect(fake.images.asked).toEqual([]);
});
