import { expect, test } from "vitest";
import { bar, judged, metric, unmeasured } from "./benchmark.ts";
import { renderResult } from "./table.ts";

test("a table shows the machine, every figure, and which bars do not hold", () => {
  const text = renderResult({
    name: "wake",
    machine: {
      cpu: "A CPU",
      cores: 2,
      kernel: "6.1",
      memoryBytes: 8 * 1024 ** 3,
      accelerator: "tcg",
      qemu: "7.2.22",
      node: "24.0.0",
      loadBefore: 0.5,
    },
    metrics: { pause: metric("ms", [1, 2, 3]) },
    ratios: { r: 0.123456 },
    bars: [
      bar("good", 0.1, 0.15),
      bar("bad", 1500, 1000),
      judged({ name: "kept", what: "much of it", relation: "≥", limit: 0.97 }, 0.98),
      unmeasured({ name: "absent", relation: "=", limit: 0 }, "this build has none"),
    ],
    failures: ["a part: no"],
  });
  expect(text).toContain("wake: A CPU, 2 cores, 8 GiB, kernel 6.1, QEMU 7.2.22 (tcg)");
  expect(text).toMatch(/pause +ms +3 +2\.00 +2\.90 +1\.00 +3\.00/);
  expect(text).toContain("0.1235");
  expect(text).toMatch(/good +0\.100 +≤ 0\.15 +holds/);
  expect(text).toMatch(/bad +1500 +≤ 1,000 +DOES NOT HOLD/);
  expect(text).toMatch(/kept +0\.980 +≥ 0\.97 +holds +much of it/);
  expect(text).toMatch(/absent += 0 +NOT MEASURED +not measured: this build has none/);
  expect(text).toContain("NOT MEASURED: a part: no");
});
