/** What was written inside and never synced by its writer, and then its agent fell asleep. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { flipBit } from "../fixtures/flip-bit.ts";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

test("C17 an automatic sleep right after a write without a sync: the cold start has every byte", async () => {
  const { client } = under;
  const { id } = await client.create({ name: "w" });
  // One large, many small, one grown in place, one renamed over another.
  const line = `cd /home/user && head -c 8M /dev/urandom > large && mkdir -p many &&
    for i in $(seq 200); do echo "number $i" > many/$i; done &&
    head -c 100000 large > grown && head -c 5000 large >> grown &&
    echo old > renamed && echo new > renamed.new && mv renamed.new renamed &&
    echo in memory > /dev/shm/kept`;
  const sums = "cd /home/user && sha256sum large grown renamed many/* | sha256sum";
  await under.sh("w", line, "user");
  const written = await under.sh("w", sums, "user");
  await under.sh("w", "cd /home/user && head -c 1000 large >> grown", "user");
  const grown = await under.sh("w", sums, "user");
  expect(grown).not.toBe(written);
  await client.configure("w", { idleAfterMs: 1_000 });
  await until("the agent to fall asleep", async () => (await client.show("w")).state === "asleep");
  expect((await client.why("w")).reasons).toMatchObject([{ reason: "idle" }]);

  const packs = join(under.home, "agents", id, "packs");
  const files = readdirSync(packs);
  expect(files.length).toBeGreaterThan(0);
  for (const file of files) await flipBit(join(packs, file), 8 * 4_096 + 3);
  const { head } = await client.show("w");
  const refused = await refusal(client.wake("w"));
  expect(refused.code).toBe("checkpoint_digest_mismatch");
  expect(await client.show("w")).toMatchObject({ state: "asleep", head });

  await client.configure("w", { idleAfterMs: null });
  const { report } = await client.recover("w", { from: "disk" });
  expect(report).toMatchObject({ route: "recover", cut: { memory: false, disk: "clean" } });
  expect(await under.sh("w", sums, "user")).toBe(grown);
  expect(await under.sh("w", "ls /dev/shm")).toBe("");
});
