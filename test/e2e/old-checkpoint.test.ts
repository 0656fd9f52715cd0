/**
 * Checkpoints of released formats wake for ever. Each fixture is a whole data directory with one sleeping
 * agent, kept as it was made; see tools/make-fixture.ts.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest, text } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

describe("a checkpoint of format 1", () => {
  const folder = mkdtempSync(join(tmpdir(), "perdure-e2e-"));
  const under = new DaemonUnderTest(join(folder, "home"));

  beforeAll(async () => {
    chmodSync(folder, 0o755);
    execFileSync("tar", [
      "--use-compress-program=zstd",
      "-C",
      folder,
      "-xf",
      "test/fixtures/checkpoint-v1.tar.zst",
    ]);
    // It was captured under software emulation; state of another accelerator would be refused.
    await under.start({
      PERDURE_IMAGES: join(folder, "images"),
      PERDURE_ACCELERATOR: "tcg",
    });
  });

  afterAll(async () => {
    expect(await under.end()).toEqual([]);
    rmSync(folder, { recursive: true, force: true });
  });

  test("wakes, with what was in its memory", async () => {
    const before = await under.client.show("fixture");
    expect(before.state).toBe("asleep");
    const { report } = await under.client.wake("fixture");
    expect(report?.route).toBe("wake");
    expect(report?.generation).toBe(before.generation + 1);
    const [first] = await under.client.processes("fixture");
    expect(first?.argv).toEqual(["/init", "--version"]);
    expect(first?.exit?.exitCode).toBe(0);
    const printed: string[] = [];
    for await (const event of under.client.process("fixture", first?.process ?? 0).output()) {
      if (event.type === "output") printed.push(text(event.bytes));
    }
    expect(printed.join("")).toMatch(/^perdure-guest 0\.1\.0/);
  });

  test("has a guest agent of version 1: it does what it did, and what it lacks is said", async () => {
    const { client } = under;
    const root = { user: "root" };
    const first = async (items: AsyncIterable<unknown>): Promise<unknown> =>
      items[Symbol.asyncIterator]().next();
    const lacking: (() => Promise<unknown>)[] = [
      () => first(client.listFolder("fixture", "/", root)),
      () => first(client.watch("fixture", "/", root)),
      () => client.makeFolder("fixture", "/tmp/d", root),
      () => client.movePath("fixture", "/tmp/a", "/tmp/b", root),
      () => client.removePath("fixture", "/tmp/a", root),
      () => client.terminal("fixture", ["/init", "--version"], root),
      () => client.connect("fixture", 80),
    ];
    for (const work of lacking) {
      const refused = await refusal(work());
      expect(refused.code).toBe("not_supported");
      expect(refused.hint).toContain("a new agent has it");
    }
    await client.writeFile("fixture", "/tmp/note", "0123456789", root);
    const part = await client.readFile("fixture", "/tmp/note", { ...root, offset: 3, length: 4 });
    expect(await part.text()).toBe("3456");
    expect((await client.stat("fixture", "/tmp/note", root)).size).toBe(10);
  });

  test("goes on to sleep and wake again", async () => {
    await under.client.sleep("fixture");
    await under.client.wake("fixture");
    const again = await under.client.run("fixture", ["/init", "--version"], { user: "root" });
    expect(text(again.stdout)).toMatch(/^perdure-guest/);
  });
});
