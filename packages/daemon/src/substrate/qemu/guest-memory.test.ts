import fc from "fast-check";
import { expect, test } from "vitest";
import { PAGE_BYTES } from "@perdure/protocol";
import { shares } from "./guest-memory.ts";

test("shares hold every page once, in order, and are of about one size", () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 500 }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(sizes, fc.integer({ min: 1, max: 4 }), (pages, count) => {
      let offset = 0;
      const areas = pages.map((n, i) => {
        const area = { address: (i + 1) * 2 ** 40, offset, bytes: n * PAGE_BYTES };
        offset += area.bytes;
        return area;
      });
      const parts = shares(areas, count);
      expect(parts).toHaveLength(count);
      const pagesOf = (list: typeof areas): string[] =>
        list.flatMap(({ address, offset: from, bytes }) =>
          Array.from({ length: bytes / PAGE_BYTES }, (_, i) => {
            return `${address + i * PAGE_BYTES} ${from + i * PAGE_BYTES}`;
          }),
        );
      expect(parts.flatMap(pagesOf)).toEqual(pagesOf(areas));
      const most = Math.ceil(offset / PAGE_BYTES / count);
      for (const part of parts) expect(pagesOf(part).length).toBeLessThanOrEqual(most);
    }),
  );
});
