/**
 * Finds the guest's memory in the VMM's address space: the areas of /proc/PID/maps that map the base.
 *
 * - I1 The areas together hold every byte of the guest's memory exactly once, at equal offsets, and
 *   are private (or shared, for a template). Anything else is refused: a page missed here would be
 *   a page missing in a checkpoint.
 */
import { readFile } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import type { MemoryArea } from "./page-run.ts";

/** Reads the areas of a live process. */
export async function readMemoryAreas(
  pid: number,
  basePath: string,
  memoryBytes: number,
  sharing: "private" | "shared",
): Promise<MemoryArea[]> {
  return parseMemoryAreas(
    await readFile(`/proc/${pid}/maps`, "latin1"),
    basePath,
    memoryBytes,
    sharing,
  );
}

/** As `readMemoryAreas`, from the text of /proc/PID/maps. @throws `machine_failed` */
export function parseMemoryAreas(
  maps: string,
  basePath: string,
  memoryBytes: number,
  sharing: "private" | "shared",
): MemoryArea[] {
  const path = asInMaps(basePath);
  const areas: MemoryArea[] = [];
  for (const line of maps.split("\n")) {
    const match = /^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) \S+ \d+ +(.*)$/.exec(line);
    if (match === null) continue;
    const [, from = "", to = "", rights = "", offset = "", name = ""] = match;
    if (name !== path && name !== `${path} (deleted)`) continue;
    if (!rights.startsWith("rw") || rights.endsWith("s") !== (sharing === "shared")) {
      throw refused(`an area of the base has rights "${rights}"`);
    }
    const address = Number.parseInt(from, 16);
    const bytes = Number.parseInt(to, 16) - address;
    areas.push({ address, offset: Number.parseInt(offset, 16), bytes });
  }
  areas.sort((a, b) => a.offset - b.offset);
  let end = 0;
  for (const area of areas) {
    if (area.offset !== end) throw refused(`offset ${end} is mapped twice or not at all`);
    end += area.bytes;
  }
  if (end !== memoryBytes) throw refused(`${end} of ${memoryBytes} bytes are mapped`);
  return areas;
}

/** The kernel writes a newline in a path as \012, and the bytes of the path as they are. */
function asInMaps(path: string): string {
  return Buffer.from(path, "utf8").toString("latin1").replaceAll("\n", "\\012");
}

function refused(reason: string): PerdureError {
  return new PerdureError(
    "machine_failed",
    `Cannot find the guest's memory in the VM process: ${reason}`,
  );
}
