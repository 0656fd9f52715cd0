/**
 * An agent that stays awake through many checkpoints: a service inside notices nothing, and it is as quick as
 * one that had few. How long things take is compared side by side, look by look: a busy host slows both.
 */
import { readdirSync, readlinkSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { service } from "./guest-program.ts";
import { machineOf } from "./host-view.ts";

const soak = process.env["PERDURE_TIER"] === "soak";
const UNDER_LOAD = soak ? 50 : 6;
const MANY = soak ? 200 : 20;
const LAYERS_MAX = 16;
const RATIO_MAX = 1.3;
/** Until a new agent has touched what its programs need, and its chain has been merged once. */
const WARM_UP = 5;
/** Medians of fewer say nothing; more are taken while they say that something has grown. */
const LOOKS = { min: 5, max: 20 };

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

test(`C1C after ${MANY} checkpoints awake, pause, reading and wake are as those of an agent that had few`, async () => {
  const { client } = under;
  interface Look {
    readonly pause: number;
    readonly read: number;
    readonly wake: number;
  }
  // One block of each sixteen, another one each time: read through all layers, where they stay.
  const change = `open(my $f, "+<", "/home/user/data") or die;
    for (my $at = $ARGV[0] % 16; $at < 1024; $at += 16) { seek($f, $at * 4096, 0); print $f chr(65 + $ARGV[0] % 26) x 4096 }
    open(my $m, ">", "/dev/shm/data") or die; print $m chr(65 + $ARGV[0] % 26) x 1048576`;
  const timed = `import time, os; os.system("sync; echo 3 > /proc/sys/vm/drop_caches")
with open("/home/user/data", "rb") as f:
    t = time.monotonic(); f.read(); print((time.monotonic() - t) * 1e3)`;
  let number = 0;
  const cut = async (name: string): Promise<number> => {
    const argv = ["/usr/bin/perl", "-e", change, String(number++)];
    expect((await client.run(name, argv, { user: "root" })).exitCode).toBe(0);
    return checkpoint(name);
  };
  const look = async (name: string): Promise<Look> => {
    const pause = await cut(name);
    const read = Number(await under.sh(name, `/usr/bin/python3 -c '${timed}'`));
    await client.sleep(name);
    const { turn = 0, total = NaN } = (await client.wake(name)).report?.phases ?? {};
    return { pause, read, wake: total - turn };
  };
  const made = async (name: string): Promise<string> => {
    const { id } = await client.create({ name });
    await under.sh(name, "head -c 4M /dev/urandom > /home/user/data; sync");
    for (let i = 0; i < WARM_UP; i++) await look(name);
    return id;
  };

  const id = await made("long");
  for (let i = 0; i < MANY; i++) {
    await cut("long");
    expect(openLayers(machineOf(under, id))).toBeLessThanOrEqual(LAYERS_MAX);
  }
  expect((await client.checkpoints("long")).length).toBeLessThanOrEqual(2);

  await made("few");
  const looks = { long: [] as Look[], few: [] as Look[] };
  const grown = (): string[] =>
    (["pause", "read", "wake"] as const).filter((what) => {
      const of = (taken: readonly Look[]): number => median(taken.map((one) => one[what]));
      return !(of(looks.long) <= RATIO_MAX * of(looks.few));
    });
  while (looks.few.length < LOOKS.min || (grown().length > 0 && looks.few.length < LOOKS.max)) {
    // Who comes first takes turns, too.
    const order = ["long", "few"] as const;
    for (const name of looks.few.length % 2 === 0 ? order : order.toReversed())
      looks[name].push(await look(name));
  }
  expect(grown(), JSON.stringify(looks)).toEqual([]);
  for (const name of ["long", "few"]) await client.remove(name);
});

/** Disk layers that a VM has open. */
function openLayers(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  const files = readdirSync(folder).map((fd) => readlinkSync(`${folder}/${fd}`));
  return new Set(files.filter((path) => path.endsWith(".qcow2"))).size;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = Math.floor(sorted.length / 2);
  return ((sorted[at] ?? NaN) + (sorted[sorted.length - 1 - at] ?? NaN)) / 2;
}
