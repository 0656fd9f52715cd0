/** Which boot of the host this is: what was verified in another one is due for a check. */
import { readFile } from "node:fs/promises";

export async function readHostBootId(): Promise<string> {
  return (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
}
