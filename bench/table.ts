/** A result as text for people. */
import type { Bar, Metric, Result, Unit } from "./benchmark.ts";

const MIB = 1024 * 1024;
/** Heads a column that is text. */
const TEXT = "what";

export function renderResult(result: Result): string {
  const { machine } = result;
  const metrics = Object.entries(result.metrics);
  return [
    `${result.name}: ${machine.cpu}, ${machine.cores} cores, ${(machine.memoryBytes / MIB / 1024).toFixed(0)} GiB, ` +
      `kernel ${machine.kernel}, QEMU ${machine.qemu} (${machine.accelerator}), Node ${machine.node}, ` +
      `load ${machine.loadBefore.toFixed(2)}`,
    "",
    ...grid(
      ["measured", "unit", "n", "median", "p95", "min", "max"],
      metrics.map(([name, metric]) => metricRow(name, metric)),
    ),
    "",
    ...grid(
      ["ratio", "value"],
      Object.entries(result.ratios).map(([name, value]) => [name, value.toFixed(4)]),
    ),
    "",
    ...grid(["bar", "value", "limit", "", TEXT], result.bars.map(barRow)),
    ...result.failures.map((failure) => `\nNOT MEASURED: ${failure}`),
    "",
  ].join("\n");
}

function metricRow(name: string, { unit, count, median, p95, min, max }: Metric): string[] {
  return [
    name,
    unit,
    String(count),
    ...[median, p95, min, max].map((value) => digits(unit, value)),
  ];
}

function digits(unit: Unit, value: number): string {
  return unit === "bytes" || unit === "count" ? value.toFixed(0) : value.toFixed(2);
}

function barRow({ name, what, value, relation, limit, holds, missing }: Bar): string[] {
  const verdict = value === null ? "NOT MEASURED" : holds ? "holds" : "DOES NOT HOLD";
  return [
    name,
    value === null ? "" : significant(value),
    `${relation} ${promised(limit)}`,
    verdict,
    missing === undefined ? (what ?? "") : `not measured: ${missing}`,
  ];
}

function significant(value: number): string {
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) < 10 ? value.toFixed(3) : value.toFixed(1);
}

/** A limit as it is promised: no digit more or less. */
function promised(limit: number): string {
  return limit.toLocaleString("en-US", { maximumFractionDigits: 6 });
}

/** Columns of equal width; the first and texts to the left, numbers to the right. */
function grid(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? "").length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        const isText = column === 0 || head[column] === TEXT;
        return isText ? cell.padEnd(width) : cell.padStart(width);
      })
      .join("  ")
      .trimEnd();
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)];
}
