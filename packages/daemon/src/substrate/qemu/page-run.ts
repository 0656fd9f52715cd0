/** Lists of page indexes, and their runs of neighbours: one system call per run instead of one per page. */
import { PAGE_BYTES } from "@perdure/protocol";

/** Where a part of the guest's memory lies in the VMM's address space. */
export interface MemoryArea {
  /** Virtual address in the VMM. */
  readonly address: number;
  /** Offset in the base file, equal to the guest's RAM offset. */
  readonly offset: number;
  readonly bytes: number;
}

export interface PageRun {
  readonly address: number;
  /** Position of the run's first page among the given indexes. */
  readonly first: number;
  readonly pages: number;
}

/**
 * Runs of pages that lie one after another in `areas`. `indexes` ascend; a page outside of every area
 * is a RangeError.
 */
export function pageRuns(indexes: Uint32Array, areas: readonly MemoryArea[]): PageRun[] {
  const runs: PageRun[] = [];
  let areaAt = 0;
  let at = 0;
  while (at < indexes.length) {
    const offset = (indexes[at] ?? 0) * PAGE_BYTES;
    let area = areas[areaAt];
    while (area !== undefined && offset >= area.offset + area.bytes) area = areas[++areaAt];
    if (area === undefined || offset < area.offset) {
      throw new RangeError(`Page ${offset / PAGE_BYTES} lies outside of the guest's memory`);
    }
    const first = at;
    const end = (area.offset + area.bytes) / PAGE_BYTES;
    let next = (indexes[at] ?? 0) + 1;
    at++;
    while (at < indexes.length && indexes[at] === next && next < end) {
      at++;
      next++;
    }
    if (at < indexes.length && (indexes[at] ?? 0) < next) {
      throw new RangeError("Page indexes must ascend");
    }
    runs.push({ address: area.address + offset - area.offset, first, pages: at - first });
  }
  return runs;
}

/** Those of `pages` that are not in `known`; both ascend, and so does the answer. */
export function newPages(
  pages: Uint32Array<ArrayBuffer>,
  known: Uint32Array,
): Uint32Array<ArrayBuffer> {
  let at = 0;
  return pages.filter((page) => {
    while (at < known.length && (known[at] ?? 0) < page) at++;
    return known[at] !== page;
  });
}
