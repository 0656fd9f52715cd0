/** An agent that stays awake through many checkpoints: a service inside notices nothing. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { service } from "./guest-program.ts";

const soak = process.env["PERDURE_TIER"] === "soak";
const UNDER_LOAD = soak ? 50 : 6;

const under = new DaemonUnderTest();
beforeAll(() => under.start());
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

/** A workload that does not freeze in time refuses: on a busy host, ask again. */
async function checkpoint(name: string): Promise<number> {
  for (let tries = 1; ; tries++) {
    try {
      return (await under.client.checkpoint(name)).pauseMs ?? 0;
    } catch (error) {
      if ((error as { code?: unknown }).code !== "freeze_timeout" || tries === 5) throw error;
    }
  }
}

test(`C09 ${UNDER_LOAD} live checkpoints under load cause no failed request inside`, async () => {
  await under.client.create({ name: "busy" });
  await under.client.exec("busy", ["/usr/bin/python3", "-c", service], { user: "root" });
  const tally = async () => {
    const words = await under.sh("busy", "cat /dev/shm/tally 2>/dev/null || echo 0 0");
    const [answered = 0, failed = 0] = words.split(" ").map(Number);
    return { answered, failed };
  };
  const answeredMore = async (): Promise<void> => {
    const { answered } = await tally();
    await until("requests to be answered", async () => (await tally()).answered > answered + 5);
  };
  await answeredMore();
  for (let i = 0; i < UNDER_LOAD; i++) {
    await checkpoint("busy");
    await answeredMore();
  }
  expect(await tally()).toMatchObject({ failed: 0 });
  expect(await under.sh("busy", "cat /dev/shm/failures 2>/dev/null || true")).toBe("");
  await under.client.remove("busy");
});
