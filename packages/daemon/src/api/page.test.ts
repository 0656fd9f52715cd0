/** Lists of one agent over HTTP, page by page. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openFakeServer } from "../../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../../test/contract/api/fake-server.ts";
import { createRawClient } from "../../../../test/contract/api/raw-client.ts";
import type { RawClient } from "../../../../test/contract/api/raw-client.ts";

let folder: string;
let fake: FakeServer;
let client: RawClient;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-page-"));
  const socketPath = join(folder, "run", "perdure.sock");
  fake = await openFakeServer(socketPath, folder);
  client = createRawClient(socketPath);
  await client.post("/v1/agents", { name: "a1" });
  for (let i = 1; i <= 5; i++) {
    const made = await client.post("/v1/agents/a1/checkpoint", { name: `c${i}` });
    const begun = await client.post("/v1/agents/a1/exec", { argv: ["true", `c${i}`] });
    expect([made.status, begun.status]).toEqual([200, 201]);
  }
});
afterEach(async () => {
  await fake.close();
  await rm(folder, { recursive: true });
});

describe.each(["checkpoints", "processes"] as const)("%s", (list) => {
  const url = `/v1/agents/a1/${list}`;

  interface Answer {
    readonly checkpoints?: { readonly name: string }[];
    readonly processes?: { readonly argv: string[] }[];
    readonly next: string | null;
  }
  async function page(query: string): Promise<{ names: unknown[]; next: string | null }> {
    const { status, text } = await client.send("GET", `${url}${query}`);
    expect(status).toBe(200);
    const { checkpoints, processes, next } = JSON.parse(text) as Answer;
    const names = checkpoints?.map(({ name }) => name) ?? processes?.map(({ argv }) => argv[1]);
    return { names: names ?? [], next };
  }

  it("come whole where they fit, and else page by page", async () => {
    expect(await page("")).toEqual({ names: ["c1", "c2", "c3", "c4", "c5"], next: null });
    const seen: unknown[] = [];
    let after = "";
    for (;;) {
      const { names, next } = await page(`?limit=2${after}`);
      seen.push(names);
      if (next === null) break;
      after = `&after=${next}`;
    }
    expect(seen).toEqual([["c1", "c2"], ["c3", "c4"], ["c5"]]);
    expect(await page("?limit=5")).toMatchObject({ next: null });
    expect(await page("?after=999999")).toEqual({ names: [], next: null });
  });

  it.each([
    "?limit=0",
    "?limit=1001",
    "?limit=x",
    "?after=",
    "?after=-1",
    "?after=cp_1",
    "?page=2",
  ])("refuse %s", async (query) => {
    const { status, text } = await client.send("GET", `${url}${query}`);
    expect([status, (JSON.parse(text) as { code: string }).code]).toEqual([400, "bad_request"]);
  });
});
