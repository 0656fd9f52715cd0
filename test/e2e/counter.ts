/** A program inside that counts in memory alone: what it says after a wake, only memory can know. */
import { until, type DaemonUnderTest } from "./daemon-under-test.ts";

const program = `
  open(my $file, ">", "/dev/shm/count.new") or die;
  $file->autoflush(1);
  rename("/dev/shm/count.new", "/dev/shm/count") or die;
  for (my $n = 1; ; $n++) {
    seek($file, 0, 0);
    print $file sprintf("%012d %d\\n", $n, $$);
    select(undef, undef, undef, 0.02);
  }`;

export interface Count {
  readonly count: number;
  /** Of the program, inside. */
  readonly pid: number;
}

/** Starts it and waits until it counts. Returns the number that exec gave the process. */
export async function startCounter(under: DaemonUnderTest, agent: string): Promise<number> {
  const { process } = await under.client.exec(agent, [
    "/usr/bin/perl",
    "-MIO::Handle",
    "-e",
    program,
  ]);
  await until("the program inside to count", async () => (await readCount(under, agent)).count > 2);
  return process;
}

/** Zeros where the program never ran in this memory. */
export async function readCount(under: DaemonUnderTest, agent: string): Promise<Count> {
  const line = await under.sh(agent, "cat /dev/shm/count 2>/dev/null || true");
  const [count = 0, pid = 0] = line === "" ? [] : line.split(" ").map(Number);
  return { count, pid };
}

/** Waits until it has counted beyond `count`. */
export function countsOn(under: DaemonUnderTest, agent: string, count: number): Promise<void> {
  return until(
    "the program inside to count on",
    async () => (await readCount(under, agent)).count > count,
  );
}
